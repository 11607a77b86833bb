//! One whole listing of a server, believed only if it is proved complete.

use std::collections::BTreeMap;

use protocol::ids::{PaneId, ProcId, ServerId, TmuxSessionId};
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};

use crate::device::Device;
use crate::error::TmuxError;
use crate::guard::ServerRef;
use crate::live::{Ask, Read};
use crate::query::Query;

/// A complete listing: everything that the server had at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// The server that answered.
    pub server: ServerRef,
    /// By tmux's session id.
    pub sessions: BTreeMap<TmuxSessionId, TmuxSession>,
    /// By pane id; process and current command are left to the caller.
    pub panes: BTreeMap<PaneId, TmuxPane>,
}

impl Device {
    /// Lists sessions and panes between marks, in one queue pass of the server.
    ///
    /// # Errors
    /// [`TmuxError::NoServer`] where nothing listens; anything else means that nothing was learnt.
    pub async fn observe(&self) -> Result<Listing, TmuxError> {
        let query = Query::new(Ask::All, self.own);
        let reply = self.run(&query.line(), None, false).await?;
        match query.read(&reply.stdout, reply.error())? {
            (_, Read::All(listing)) => Ok(listing),
            (_, other) => Err(TmuxError::Output(format!("{other:?} for a whole listing"))),
        }
    }
}

impl Listing {
    /// The listing with each process stamped with its start time. `stamp` is asked for the server
    /// and for each pane whose terminal is open: the pid of a dead pane may be another's by now.
    /// Without a stamp for the server nothing can be said of which server this was.
    #[must_use]
    pub fn into_state(self, stamp: impl Fn(u32) -> Option<ProcId>) -> TmuxState {
        let Some(process) = stamp(self.server.pid) else {
            return unknown(format!("the tmux server, pid {}, is not in the process table", self.server.pid));
        };
        let server = Server::Up(ServerId { process, started_at: self.server.started_at });
        let mut panes = self.panes;
        for pane in panes.values_mut().filter(|pane| !pane.dead && pane.pid > 0) {
            pane.process = stamp(pane.pid);
        }
        TmuxState { server, sessions: self.sessions, panes }
    }
}

/// What an observation says about the server: up, absent or unknown.
#[must_use]
pub fn state(observed: Result<Listing, TmuxError>, stamp: impl Fn(u32) -> Option<ProcId>) -> TmuxState {
    match observed {
        Ok(listing) => listing.into_state(stamp),
        Err(TmuxError::NoServer) => TmuxState::default(),
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
        assert_eq!(state(Err(TmuxError::NoServer), stamp).server, Server::Absent);
        assert!(matches!(state(Err(TmuxError::ServerExited), stamp).server, Server::Unknown(_)));
        let server = ServerRef { pid: 10, started_at: 99 };
        let listing = || Listing { server, sessions: BTreeMap::new(), panes: BTreeMap::new() };
        assert!(matches!(listing().into_state(stamp).server, Server::Up(_)));
        assert!(matches!(listing().into_state(|_| None).server, Server::Unknown(_)));
    }
}
