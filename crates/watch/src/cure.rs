//! Two things that a tmux server misses, and that one signal to it mends.
//!
//! - Builds with utempter before 3.6 lose the news that a pane's program ended: it stays a zombie, and
//!   its exit status unknown, until any other child ends. SIGCHLD makes the server look.
//! - A server whose socket file was removed lives on, out of reach. SIGUSR1 makes it listen anew.
//!
//! The server is held and verified by number and start time before it is signalled, and each cure
//! is tried a few times only.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::Signal;
use process::handle::Handle;
use process::identity::{self, State};
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{PaneId, ServerId};

/// How often each cure is tried: one signal may come while the server is deaf, three in a row were
/// always enough.
const TRIES: u8 = 3;
/// So many looks in a row must miss the socket: a server that is ending is silent for one or two.
const SILENT_LOOKS: u32 = 4;

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct Cure {
    server: Option<ServerId>,
    exits: BTreeMap<PaneId, u8>,
    silent: u32,
    listens: u8,
}

impl Cure {
    /// Looks whether the server, the one seen last, has missed something.
    pub(crate) fn tend(&mut self, state: &TmuxState, server: Option<ServerId>, socket: &Path) {
        let Some(server) = server else { return };
        if self.server.replace(server) != Some(server) {
            (self.exits, self.silent, self.listens) = (BTreeMap::new(), 0, 0);
        }
        match state.server {
            Server::Up(_) => {
                (self.silent, self.listens) = (0, 0);
                if self.needs_sigchld(state, |pane| is_zombie_child(pane.pid, server)) {
                    signal(server, Signal::SIGCHLD);
                }
            }
            Server::Absent if self.needs_sigusr1(socket) => signal(server, Signal::SIGUSR1),
            Server::Absent | Server::Unknown(_) => {}
        }
    }

    /// Whether a pane's program has ended and the server does not know how.
    fn needs_sigchld(&mut self, state: &TmuxState, is_zombie: impl Fn(&TmuxPane) -> bool) -> bool {
        self.exits.retain(|id, _| state.panes.contains_key(id));
        let unknown = |pane: &TmuxPane| pane.exit_status.is_none() && pane.exit_signal.is_none();
        let mut needed = false;
        for (id, _) in state.panes.iter().filter(|(_, pane)| pane.dead && unknown(pane) && is_zombie(pane)) {
            let tries = self.exits.entry(*id).or_default();
            needed |= *tries < TRIES;
            *tries = tries.saturating_add(1);
        }
        needed
    }

    fn needs_sigusr1(&mut self, socket: &Path) -> bool {
        let missing = socket.symlink_metadata().is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound);
        self.silent = if missing { self.silent + 1 } else { 0 };
        let needed = self.silent >= SILENT_LOOKS && self.listens < TRIES;
        if needed {
            (self.silent, self.listens) = (0, self.listens + 1);
        }
        needed
    }
}

/// Also says that the server is the parent of its panes, so a tmux server for sure.
fn is_zombie_child(pid: u32, server: ServerId) -> bool {
    let process = identity::read(pid).ok().flatten();
    process.is_some_and(|process| process.state == State::Zombie && process.ppid == server.process.pid)
}

fn signal(server: ServerId, signal: Signal) {
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
    use crate::testing::pane;

    fn dead(exit_status: Option<i32>) -> TmuxState {
        let (id, pane) = pane(1, 42);
        let pane = TmuxPane { dead: true, exit_status, ..pane };
        TmuxState { panes: [(id, pane)].into(), ..TmuxState::default() }
    }

    #[test]
    fn an_unknown_end_is_asked_for_a_few_times() {
        let mut cure = Cure::default();
        assert!(!cure.needs_sigchld(&dead(Some(0)), |_| true), "known");
        assert!(!cure.needs_sigchld(&dead(None), |_| false), "no zombie");
        let tries = (0..10).filter(|_| cure.needs_sigchld(&dead(None), |_| true)).count();
        assert_eq!(tries, usize::from(TRIES));
        cure.needs_sigchld(&TmuxState::default(), |_| true);
        assert!(cure.needs_sigchld(&dead(None), |_| true), "another pane of that number");
    }

    #[test]
    fn a_missing_socket_is_asked_for_a_few_times_only() {
        let dir = tempfile::tempdir().unwrap();
        let mut cure = Cure::default();
        let mut asked = |looks| (0..looks).filter(|_| cure.needs_sigusr1(&dir.path().join("s"))).count();
        assert_eq!(asked(SILENT_LOOKS - 1), 0);
        assert_eq!(asked(1), 1);
        assert_eq!(asked(100), usize::from(TRIES) - 1);
        assert!((0..100).all(|_| !Cure::default().needs_sigusr1(dir.path())), "it is there");
    }
}
