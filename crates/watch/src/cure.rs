//! Two things that a tmux server misses, and that one signal to it mends.
//!
//! - Builds with utempter before 3.6 lose the news that a pane's program ended: it stays a zombie, and
//!   its exit status unknown, until any other child ends. SIGCHLD makes the server look.
//! - A server whose socket file was removed lives on, out of reach. SIGUSR1 makes it listen anew.
//!
//! The server is held and verified by number and start time before it is signalled, and each cure
//! is tried a few times only.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use protocol::tmux::TmuxPane;
use protocol::{PaneId, ServerId};
use tokio::time::Instant;

/// How often each cure is tried: one signal may come while the server is deaf, three in a row were
/// always enough.
const TRIES: u8 = 3;
/// So many looks in a row must miss the socket: a server that is ending is out of reach for one or two.
const SILENT_LOOKS: u32 = 4;
/// And for so long.
const SILENT_TIME: Duration = Duration::from_secs(2);
/// How long after an end, and after each look, it is looked what the server made of it. With
/// utempter the server itself takes two milliseconds for each.
const LOOKS: [Duration; 5] = [
    Duration::from_millis(4),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(400),
];

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct Cure {
    ends: BTreeMap<PaneId, End>,
    misses: u32,
    /// The first of these misses.
    missed: Option<Instant>,
    listens: u8,
}

/// The end of a pane's program, until the server knows of it.
#[derive(Debug, PartialEq, Eq)]
struct End {
    pid: u32,
    /// The next look, and its number.
    due: Option<Instant>,
    looks: usize,
    pokes: u8,
}

/// What is to be done about ends.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    /// Whether the server must look at its children.
    pub(crate) poke: bool,
    /// What the server shows of these panes may have changed.
    pub(crate) read: Vec<PaneId>,
}

impl Cure {
    /// The program of this pane has ended: it is looked after until the server knows.
    pub(crate) fn ended(&mut self, id: PaneId, pid: u32, now: Instant) {
        let known = self.ends.get(&id).is_some_and(|end| end.pid == pid);
        if !known {
            self.ends.insert(id, End { pid, due: Some(now + LOOKS[0]), looks: 0, pokes: 0 });
        }
    }

    /// Only these panes are there.
    pub(crate) fn retain(&mut self, is_there: impl Fn(PaneId) -> bool) {
        self.ends.retain(|id, _| is_there(*id));
    }

    /// When the next look is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.ends.values().filter_map(|end| end.due).min()
    }

    /// What is needed now. An end that the server knows, with `is_known`, is done with.
    pub(crate) fn look(
        &mut self,
        now: Instant,
        is_known: impl Fn(PaneId) -> bool,
        is_zombie: impl Fn(u32) -> bool,
    ) -> Needed {
        let mut needed = Needed::default();
        for (id, end) in self.ends.iter_mut().filter(|(_, end)| end.due.is_some_and(|due| due <= now)) {
            let zombie = is_zombie(end.pid);
            if zombie && end.pokes < TRIES {
                end.pokes += 1;
                needed.poke = true;
            }
            end.looks += 1;
            end.due = LOOKS.get(end.looks).map(|pause| now + *pause).filter(|_| zombie || !is_known(*id));
            needed.read.push(*id);
        }
        needed
    }

    /// The server's socket is there, or there is no server.
    pub(crate) fn in_reach(&mut self) {
        (self.misses, self.missed, self.listens) = (0, None, 0);
    }

    /// The server lives, and its socket is not there. Whether it must listen anew.
    pub(crate) fn out_of_reach(&mut self, now: Instant) -> bool {
        self.misses += 1;
        let long = now.duration_since(*self.missed.get_or_insert(now)) >= SILENT_TIME;
        let needed = long && self.misses >= SILENT_LOOKS && self.listens < TRIES;
        if needed {
            (self.misses, self.missed, self.listens) = (0, None, self.listens + 1);
        }
        needed
    }
}

/// Whether this process has ended and waits for this server to take note.
pub(crate) fn is_zombie_child(pid: u32, server: ServerId) -> bool {
    let process = identity::read(pid).ok().flatten();
    process.is_some_and(|process| process.state == State::Zombie && process.ppid == server.process.pid)
}

/// Whether a process that runs in one of these panes is a child of this server.
pub(crate) fn is_parent(server: ServerId, panes: &BTreeMap<PaneId, TmuxPane>) -> bool {
    panes.values().filter_map(|pane| pane.process).any(|id| {
        let process = identity::read(id.pid).ok().flatten();
        process.is_some_and(|process| process.id == id && process.ppid == server.process.pid)
    })
}

/// Signals the server, if it is that very process, and a tmux server: by its name, or because it has
/// a `child` in a pane.
pub(crate) fn signal(server: ServerId, signal: Signal, child: impl Fn() -> bool) {
    let found = identity::read(server.process.pid).ok().flatten();
    let named =
        found.is_some_and(|process| process.id == server.process && process.comm.0.starts_with(b"tmux"));
    if !named && !child() {
        return tracing::warn!(%server, "not signalled: it does not look like a tmux server");
    }
    let sent = Handle::open(server.process)
        .and_then(|handle| handle.map_or(Ok(false), |handle| handle.signal(signal)));
    match sent {
        Ok(true) => tracing::info!(%server, %signal, "reminded the tmux server"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%server, %signal, %error, "the tmux server could not be reminded"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANE: PaneId = PaneId(1);

    /// Looks until none is due; how often the server was poked, and the pane read.
    fn looked(cure: &mut Cure, known: impl Fn() -> bool, zombie: impl Fn() -> bool) -> (usize, usize) {
        let (mut pokes, mut reads) = (0, 0);
        while let Some(due) = cure.due() {
            let needed = cure.look(due, |_| known(), |_| zombie());
            pokes += usize::from(needed.poke);
            reads += needed.read.len();
        }
        (pokes, reads)
    }

    #[test]
    fn an_unknown_end_is_asked_for_a_few_times() {
        let now = Instant::now();
        let mut cure = Cure::default();
        assert_eq!(looked(&mut cure, || true, || true), (0, 0), "nothing ended");
        cure.ended(PANE, 42, now);
        assert_eq!(looked(&mut cure, || false, || true), (usize::from(TRIES), LOOKS.len()));
        cure.ended(PANE, 42, now);
        assert_eq!(cure.due(), None, "it was tried");
        cure.ended(PANE, 43, now);
        assert_eq!(looked(&mut cure, || true, || false), (0, 1), "the server knows");
        cure.retain(|_| false);
        cure.ended(PANE, 43, now);
        assert_eq!(looked(&mut cure, || false, || false), (0, LOOKS.len()), "another pane of that number");
    }

    #[test]
    fn a_missing_socket_is_asked_for_a_few_times_only() {
        let (mut cure, mut now) = (Cure::default(), Instant::now());
        assert!((0..100).all(|_| !cure.out_of_reach(now)), "too soon");
        cure.in_reach();
        let mut asked = |cure: &mut Cure, looks| {
            let mut later = || {
                now += SILENT_TIME;
                now
            };
            (0..looks).filter(|_| cure.out_of_reach(later())).count()
        };
        assert_eq!(asked(&mut cure, SILENT_LOOKS - 1), 0);
        assert_eq!(asked(&mut cure, 1), 1);
        assert_eq!(asked(&mut cure, 100), usize::from(TRIES) - 1);
        cure.in_reach();
        assert_eq!(asked(&mut cure, SILENT_LOOKS), 1);
    }
}
