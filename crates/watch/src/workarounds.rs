//! Signals that make a tmux server notice what it missed.
//!
//! - Builds with utempter before 3.6 can miss the exit of a pane's program: it stays a zombie with unknown
//!   status until another child exits. SIGCHLD makes the server reap its children.
//! - A server whose socket file was removed or replaced lives on, out of reach. SIGUSR1 makes it recreate the socket.
//!
//! The server's process is held and verified by pid and start time before it is signalled, and each signal
//! is tried a few times only.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use protocol::tmux::TmuxPane;
use protocol::{PaneId, ServerId};
use tokio::time::Instant;

/// Maximum number of each signal: one may come while the server does not listen; three in a row were always
/// enough.
const MAX_TRIES: u8 = 3;
/// Consecutive failures to reach the socket before a signal is sent: a server that is just exiting causes one or two.
const MIN_MISSES: u32 = 4;
/// Minimum duration of these misses.
const MIN_MISSING_TIME: Duration = Duration::from_secs(2);
/// Delays after an exit, and after each check, of the next check whether the server noticed. With utempter
/// the server itself takes two milliseconds for each exit.
const CHECK_DELAYS: [Duration; 5] = [
    Duration::from_millis(4),
    Duration::from_millis(10),
    Duration::from_millis(30),
    Duration::from_millis(100),
    Duration::from_millis(400),
];

/// State of the workarounds.
#[derive(Debug, Default)]
pub(crate) struct Workarounds {
    exits: BTreeMap<PaneId, PendingExit>,
    misses: u32,
    /// Time of the first of these misses.
    first_miss: Option<Instant>,
    relisten_signals: u8,
}

/// Exit of a pane's program that the server has not noticed.
#[derive(Debug, PartialEq, Eq)]
struct PendingExit {
    pid: u32,
    /// Time of the next check, and the number of checks so far.
    due: Option<Instant>,
    checks: usize,
    signals: u8,
}

/// Actions required for unnoticed exits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Actions {
    /// True if the server needs a SIGCHLD.
    pub(crate) remind: bool,
    /// Panes that the server may show differently now.
    pub(crate) reread: Vec<PaneId>,
}

impl Workarounds {
    /// Starts to check this pane until the server notices the exit of its program.
    pub(crate) fn pane_exited(&mut self, id: PaneId, pid: u32, now: Instant) {
        let known = self.exits.get(&id).is_some_and(|exit| exit.pid == pid);
        if !known {
            self.exits
                .insert(id, PendingExit { pid, due: Some(now + CHECK_DELAYS[0]), checks: 0, signals: 0 });
        }
    }

    /// Drops panes that no longer exist.
    pub(crate) fn retain(&mut self, is_there: impl Fn(PaneId) -> bool) {
        self.exits.retain(|id, _| is_there(*id));
    }

    /// Time of the next check.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.exits.values().filter_map(|exit| exit.due).min()
    }

    /// Runs the due checks. An exit is done with once `is_known` is true for its pane.
    pub(crate) fn check(
        &mut self,
        now: Instant,
        is_known: impl Fn(PaneId) -> bool,
        is_zombie: impl Fn(u32) -> bool,
    ) -> Actions {
        let mut actions = Actions::default();
        for (id, exit) in self.exits.iter_mut().filter(|(_, exit)| exit.due.is_some_and(|due| due <= now)) {
            let zombie = is_zombie(exit.pid);
            if zombie && exit.signals < MAX_TRIES {
                exit.signals += 1;
                actions.remind = true;
            }
            exit.checks += 1;
            exit.due =
                CHECK_DELAYS.get(exit.checks).map(|pause| now + *pause).filter(|_| zombie || !is_known(*id));
            actions.reread.push(*id);
        }
        actions
    }

    /// Records that the socket exists, or that there is no server.
    pub(crate) fn socket_reachable(&mut self) {
        (self.misses, self.first_miss, self.relisten_signals) = (0, None, 0);
    }

    /// Records that the server lives without a socket at its path. True if it needs a SIGUSR1.
    pub(crate) fn socket_missing(&mut self, now: Instant) -> bool {
        self.misses += 1;
        let long = now.duration_since(*self.first_miss.get_or_insert(now)) >= MIN_MISSING_TIME;
        let actions = long && self.misses >= MIN_MISSES && self.relisten_signals < MAX_TRIES;
        if actions {
            (self.misses, self.first_miss, self.relisten_signals) = (0, None, self.relisten_signals + 1);
        }
        actions
    }
}

/// True if this process has ended and the server has not reaped it.
pub(crate) fn is_zombie_child(pid: u32, server: ServerId) -> bool {
    let process = identity::read_each(&[pid]).remove(&pid);
    process.is_some_and(|process| process.state == State::Zombie && process.ppid == server.process.pid)
}

/// True if a process in one of these panes is a child of this server.
pub(crate) fn is_parent(server: ServerId, panes: &BTreeMap<PaneId, TmuxPane>) -> bool {
    panes.values().filter_map(|pane| pane.process).any(|id| {
        let process = identity::read_each(&[id.pid]).remove(&id.pid);
        process.is_some_and(|process| process.id == id && process.ppid == server.process.pid)
    })
}

/// Signals the server if it is that very process, and a tmux server: by its name, or because it has a
/// `child` in a pane.
pub(crate) fn signal_server(server: ServerId, signal: Signal, child: impl Fn() -> bool) {
    let found = identity::read(server.process.pid).ok().flatten();
    let named =
        found.is_some_and(|process| process.id == server.process && process.comm.0.starts_with(b"tmux"));
    if !named && !child() {
        return tracing::warn!(%server, "not signalled: this is not certainly a tmux server");
    }
    let sent = Handle::open(server.process)
        .and_then(|handle| handle.map_or(Ok(false), |handle| handle.signal(signal)));
    match sent {
        Ok(true) => tracing::info!(%server, %signal, "signalled the tmux server"),
        Ok(false) => {}
        Err(error) => tracing::warn!(%server, %signal, %error, "the tmux server could not be signalled"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANE: PaneId = PaneId(1);

    /// Runs all checks until none is due; returns the numbers of signals and of reads.
    fn run_checks(
        workarounds: &mut Workarounds,
        known: impl Fn() -> bool,
        zombie: impl Fn() -> bool,
    ) -> (usize, usize) {
        let (mut signals, mut reads) = (0, 0);
        while let Some(due) = workarounds.due() {
            let actions = workarounds.check(due, |_| known(), |_| zombie());
            signals += usize::from(actions.remind);
            reads += actions.reread.len();
        }
        (signals, reads)
    }

    #[test]
    fn an_unknown_end_is_asked_for_a_few_times() {
        let now = Instant::now();
        let mut workarounds = Workarounds::default();
        assert_eq!(run_checks(&mut workarounds, || true, || true), (0, 0), "nothing ended");
        workarounds.pane_exited(PANE, 42, now);
        assert_eq!(
            run_checks(&mut workarounds, || false, || true),
            (usize::from(MAX_TRIES), CHECK_DELAYS.len())
        );
        workarounds.pane_exited(PANE, 42, now);
        assert_eq!(workarounds.due(), None, "it was tried");
        workarounds.pane_exited(PANE, 43, now);
        assert_eq!(run_checks(&mut workarounds, || true, || false), (0, 1), "the server knows");
        workarounds.retain(|_| false);
        workarounds.pane_exited(PANE, 43, now);
        assert_eq!(
            run_checks(&mut workarounds, || false, || false),
            (0, CHECK_DELAYS.len()),
            "another pane of that number"
        );
    }

    #[test]
    fn a_missing_socket_is_asked_for_a_few_times_only() {
        let (mut workarounds, mut now) = (Workarounds::default(), Instant::now());
        assert!((0..100).all(|_| !workarounds.socket_missing(now)), "too soon");
        workarounds.socket_reachable();
        let mut asked = |workarounds: &mut Workarounds, checks| {
            let mut later = || {
                now += MIN_MISSING_TIME;
                now
            };
            (0..checks).filter(|_| workarounds.socket_missing(later())).count()
        };
        assert_eq!(asked(&mut workarounds, MIN_MISSES - 1), 0);
        assert_eq!(asked(&mut workarounds, 1), 1);
        assert_eq!(asked(&mut workarounds, 100), usize::from(MAX_TRIES) - 1);
        workarounds.socket_reachable();
        assert_eq!(asked(&mut workarounds, MIN_MISSES), 1);
    }
}
