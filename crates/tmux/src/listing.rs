//! Complete listing of a server.

use std::collections::BTreeMap;

use protocol::tmux::{NoAnswer, Server, ServerProblem, TmuxPane, TmuxSession, TmuxState};
use protocol::{PaneId, ProcId, ServerId, TmuxSessionId};

use crate::error::TmuxError;
use crate::guard::ServerRef;

/// Complete listing: everything on the server at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Identity of the server that answered.
    pub server: ServerRef,
    /// Sessions by tmux's id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// Panes by id, without process and current command, which the caller adds.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

impl Listing {
    /// The pids of the server and of the panes with an open terminal.
    pub fn pids(&self) -> Vec<u32> {
        let panes = self.panes.values().filter(|pane| is_open(pane));
        std::iter::once(self.server.pid).chain(panes.map(|pane| pane.pid)).collect()
    }

    /// Converts the listing into a state whose processes are stamped with their start times. `stamp` is called for the
    /// server and for each pane with an open terminal. If the server gets no stamp, its state is unknown.
    pub fn into_state(self, stamp: impl Fn(u32) -> Option<ProcId>) -> TmuxState {
        let Some(process) = stamp(self.server.pid) else {
            return unknown(format!("the tmux server, pid {}, is not in the process table", self.server.pid));
        };
        let server = Server::Up(ServerId { process, started_at: self.server.started_at });
        let mut panes = self.panes;
        for pane in panes.values_mut().filter(|pane| is_open(pane)) {
            pane.process = stamp(pane.pid);
        }
        TmuxState { server, sessions: self.sessions, panes }
    }
}

/// True if the terminal of a pane is open: the pid of a dead pane may have been reused.
fn is_open(pane: &TmuxPane) -> bool {
    !pane.dead && pane.pid > 0
}

/// Returns the state that an observation proves: the server is up, absent or unknown.
pub fn observed_state(
    observed: Result<Listing, TmuxError>,
    stamp: impl Fn(u32) -> Option<ProcId>,
) -> TmuxState {
    match observed {
        Ok(listing) => listing.into_state(stamp),
        Err(TmuxError::NoServer) => TmuxState::default(),
        Err(error) if error.is_of_program() => {
            let trouble = ServerProblem::NoTmux;
            let server =
                Server::Unknown(NoAnswer { trouble, server: None, detail: error.to_string(), pid: None });
            TmuxState { server, ..TmuxState::default() }
        }
        Err(error) => unknown(error.to_string()),
    }
}

fn unknown(why: String) -> TmuxState {
    TmuxState { server: Server::unknown(why), ..TmuxState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_unknown_and_up_are_three_answers() {
        let stamp = |pid| Some(ProcId { pid, start: 1 });
        assert_eq!(observed_state(Err(TmuxError::NoServer), stamp).server, Server::Absent);
        let trouble = |error| match observed_state(Err(error), stamp).server {
            Server::Unknown(silence) => silence.trouble,
            other => panic!("{other:?}"),
        };
        assert_eq!(trouble(TmuxError::ServerExited), ServerProblem::Unknown);
        assert_eq!(trouble(TmuxError::Missing("/no/tmux".into())), ServerProblem::NoTmux);
        let server = ServerRef { pid: 10, started_at: 99 };
        let listing = || Listing { server, sessions: BTreeMap::new(), panes: BTreeMap::new() };
        assert!(matches!(listing().into_state(stamp).server, Server::Up(_)));
        assert!(matches!(listing().into_state(|_| None).server, Server::Unknown(_)));
    }
}
