//! What of the state may differ from what was told.

use std::collections::BTreeSet;

use protocol::diff::{Change, diff};
use protocol::tmux::TmuxState;
use protocol::{PaneId, TmuxSessionId};

/// What of the state may differ from what was told.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    all: bool,
    server: bool,
    sessions: BTreeSet<TmuxSessionId>,
    panes: BTreeSet<PaneId>,
}

impl Touched {
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

    /// What is different, in the order of [`diff`].
    pub(crate) fn changes(&self, told: &TmuxState, now: &TmuxState) -> Vec<Change> {
        if self.all {
            return diff(told, now);
        }
        let mut changes = Vec::new();
        if self.server && told.server != now.server {
            changes.push(Change::Server(now.server.clone()));
        }
        let gone = self.panes.iter().filter(|id| told.panes.contains_key(id) && !now.panes.contains_key(id));
        changes.extend(gone.map(|id| Change::PaneGone(*id)));
        let gone = self
            .sessions
            .iter()
            .filter(|id| told.sessions.contains_key(id) && !now.sessions.contains_key(id));
        changes.extend(gone.map(|id| Change::SessionGone(*id)));
        let sessions = self.sessions.iter().filter_map(|id| Some((id, now.sessions.get(id)?)));
        let sessions = sessions.filter(|(id, session)| told.sessions.get(id) != Some(session));
        changes.extend(sessions.map(|(id, session)| Change::Session(*id, session.clone())));
        let panes = self.panes.iter().filter_map(|id| Some((id, now.panes.get(id)?)));
        let panes = panes.filter(|(id, pane)| told.panes.get(id) != Some(pane));
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
        let told = TmuxState {
            server: Server::Absent,
            sessions: [session(1, "a"), session(2, "b")].into(),
            panes: [pane(1, 41), pane(2, 42), pane(3, 43)].into(),
        };
        let now = TmuxState {
            server: Server::unknown("x"),
            sessions: [session(1, "c"), session(3, "d")].into(),
            panes: [pane(1, 44), pane(3, 43), pane(4, 45)].into(),
        };
        let mut touched = Touched::default();
        assert_eq!(touched.changes(&told, &now), []);
        touched.server();
        (1..=4).for_each(|n| touched.session(TmuxSessionId(n)));
        (1..=5).for_each(|n| touched.pane(PaneId(n)));
        assert_eq!(touched.changes(&told, &now), diff(&told, &now));
        touched.all();
        assert_eq!(touched.changes(&told, &now), diff(&told, &now));
    }
}
