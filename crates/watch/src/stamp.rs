//! Which process a pane runs. tmux tells a number only, and numbers are reused: a stamp is taken
//! while the process is the living child of that very server, and kept for as long as the pane
//! keeps the number, so that whoever reads it can tell whether this process has ended.

use std::collections::BTreeMap;

use process::identity::{Process, State};
use protocol::tmux::{Server, TmuxPane, TmuxState};
use protocol::{PaneId, ProcId, ServerId};
use tmux::{Listing, TmuxError, observe};

/// The stamps of one server's panes.
#[derive(Debug, Default)]
pub(crate) struct Stamps {
    server: Option<ServerId>,
    panes: BTreeMap<PaneId, ProcId>,
}

impl Stamps {
    /// The observation with its processes, read from the process table by `read`.
    pub(crate) fn state(
        &mut self,
        observed: Result<Listing, TmuxError>,
        read: impl Fn(u32) -> Option<Process>,
    ) -> TmuxState {
        let server = observed.as_ref().ok().map(|listing| listing.server.pid);
        let belongs = |process: &Process| {
            process.state != State::Zombie && [process.id.pid, process.ppid].map(Some).contains(&server)
        };
        let mut state = observe::state(observed, |pid| read(pid).filter(belongs).map(|process| process.id));
        if let Server::Up(server) = state.server {
            self.keep(server, &mut state.panes);
        }
        state
    }

    /// The server that was seen last.
    pub(crate) fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// Puts in the earlier stamps, and remembers all that there are now.
    fn keep(&mut self, server: ServerId, panes: &mut BTreeMap<PaneId, TmuxPane>) {
        if self.server.replace(server) != Some(server) {
            self.panes.clear();
        }
        for (id, pane) in panes.iter_mut() {
            let known = self.panes.get(id).filter(|known| known.pid == pane.pid);
            pane.process = known.copied().or(pane.process);
        }
        self.panes = panes.iter().filter_map(|(id, pane)| Some((*id, pane.process?))).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{child, listing, pane};

    /// A process table of the server and some children of it.
    fn table(children: &[(u32, u64)]) -> impl Fn(u32) -> Option<Process> {
        let mut all = vec![child(10, 1, 5)];
        all.extend(children.iter().map(|(pid, start)| child(*pid, 10, *start)));
        move |pid| all.iter().find(|process| process.id.pid == pid).cloned()
    }

    fn stamp(state: &TmuxState, n: u32) -> Option<ProcId> {
        state.panes[&PaneId(n)].process
    }

    #[test]
    fn a_stamp_outlives_its_process_and_is_never_anothers() {
        let mut stamps = Stamps::default();
        let first = stamps.state(Ok(listing([pane(1, 42)])), table(&[(42, 7)]));
        assert_eq!(stamp(&first, 1), Some(ProcId { pid: 42, start: 7 }));
        let ended = stamps.state(Ok(listing([pane(1, 42)])), table(&[]));
        let reused = stamps.state(Ok(listing([pane(1, 42)])), table(&[(42, 9)]));
        assert_eq!((stamp(&ended, 1), stamp(&reused, 1)), (stamp(&first, 1), stamp(&first, 1)));
        let respawned = stamps.state(Ok(listing([pane(1, 43)])), table(&[(42, 9), (43, 10)]));
        assert_eq!(stamp(&respawned, 1), Some(ProcId { pid: 43, start: 10 }));
    }

    #[test]
    fn a_stranger_with_the_number_is_not_stamped() {
        let read = |pid| Some(if pid == 10 { child(10, 1, 5) } else { child(pid, 1, 7) });
        let state = Stamps::default().state(Ok(listing([pane(1, 42)])), read);
        assert!(matches!(state.server, Server::Up(_)));
        assert_eq!(stamp(&state, 1), None, "not a child of the server");
        let zombie = |pid| {
            let process = child(pid, 10, 7);
            Some(if pid == 10 { process } else { Process { state: State::Zombie, ..process } })
        };
        assert_eq!(stamp(&Stamps::default().state(Ok(listing([pane(1, 42)])), zombie), 1), None);
    }

    #[test]
    fn silence_keeps_stamps_and_another_server_has_its_own() {
        let mut stamps = Stamps::default();
        let first = stamps.state(Ok(listing([pane(1, 42)])), table(&[(42, 7)]));
        let unknown = stamps.state(Err(TmuxError::ServerExited), table(&[]));
        assert!(matches!(unknown.server, Server::Unknown(_)) && unknown.panes.is_empty());
        assert_eq!(stamps.state(Err(TmuxError::NoServer), table(&[])), TmuxState::default());
        let again = stamps.state(Ok(listing([pane(1, 42)])), table(&[]));
        assert_eq!(stamp(&again, 1), stamp(&first, 1));
        let mut other = listing([pane(1, 42)]);
        other.server.started_at += 1;
        assert_eq!(stamp(&stamps.state(Ok(other), table(&[])), 1), None);
    }
}
