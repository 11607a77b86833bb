//! Parts of the state that may differ from the reported state.

use std::collections::BTreeSet;

use protocol::diff::{Change, diff};
use protocol::tmux::TmuxState;
use protocol::{PaneId, TmuxSessionId};

/// Parts of the state that may differ from the reported state.
#[derive(Debug, Default)]
pub(crate) struct ChangeSet {
    all: bool,
    server: bool,
    sessions: BTreeSet<TmuxSessionId>,
    panes: BTreeSet<PaneId>,
}

impl ChangeSet {
    pub(crate) fn all(&mut self) {
        self.all = true;
    }

    pub(crate) fn server(&mut self) {
        self.server = true;
    }

    pub(crate) fn session(&mut self, id: TmuxSessionId) {
        self.sessions.insert(id);
    }

    pub(crate) fn pane(&mut self, id: PaneId) {
        self.panes.insert(id);
    }

    /// Returns the differences, in the order of [`diff`].
    pub(crate) fn changes(&self, reported: &TmuxState, now: &TmuxState) -> Vec<Change> {
        if self.all {
            return diff(reported, now);
        }
        let mut changes = Vec::new();
        if self.server && reported.server != now.server {
            changes.push(Change::Server(now.server.clone()));
        }
        let gone =
            self.panes.iter().filter(|id| reported.panes.contains_key(id) && !now.panes.contains_key(id));
        changes.extend(gone.map(|id| Change::PaneGone(*id)));
        let gone = self
            .sessions
            .iter()
            .filter(|id| reported.sessions.contains_key(id) && !now.sessions.contains_key(id));
        changes.extend(gone.map(|id| Change::SessionGone(*id)));
        let sessions = self.sessions.iter().filter_map(|id| Some((id, now.sessions.get(id)?)));
        let sessions = sessions.filter(|(id, session)| reported.sessions.get(id) != Some(session));
        changes.extend(sessions.map(|(id, session)| Change::Session(*id, session.clone())));
        let panes = self.panes.iter().filter_map(|id| Some((id, now.panes.get(id)?)));
        let panes = panes.filter(|(id, pane)| reported.panes.get(id) != Some(pane));
        changes.extend(panes.map(|(id, pane)| Change::Pane(*id, pane.clone())));
        changes
    }
}

#[cfg(test)]
mod tests {
    use protocol::tmux::Server;

    use super::*;
    use crate::testing::{pane, session};

    #[test]
    fn what_was_touched_is_told_as_a_whole_comparison_would() {
        let reported = TmuxState {
            server: Server::Absent,
            sessions: [session(1, "a"), session(2, "b")].into(),
            panes: [pane(1, 41), pane(2, 42), pane(3, 43)].into(),
        };
        let now = TmuxState {
            server: Server::unknown("x"),
            sessions: [session(1, "c"), session(3, "d")].into(),
            panes: [pane(1, 44), pane(3, 43), pane(4, 45)].into(),
        };
        let mut changed = ChangeSet::default();
        assert_eq!(changed.changes(&reported, &now), []);
        changed.server();
        (1..=4).for_each(|n| changed.session(TmuxSessionId(n)));
        (1..=5).for_each(|n| changed.pane(PaneId(n)));
        assert_eq!(changed.changes(&reported, &now), diff(&reported, &now));
        changed.all();
        assert_eq!(changed.changes(&reported, &now), diff(&reported, &now));
    }
}
