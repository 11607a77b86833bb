//! Changes between two observations of tmux. `diff(a, b)` applied to `a` gives `b`.

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, TmuxSessionId};
use crate::tmux::{Server, TmuxPane, TmuxSession, TmuxState};

/// One change. Carries the new value, so applying it twice is applying it once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Another server, or another answer about it.
    Server(Server),
    /// A session is new or different.
    Session(TmuxSessionId, TmuxSession),
    /// A session is not there any more.
    SessionGone(TmuxSessionId),
    /// A pane is new or different.
    Pane(PaneId, TmuxPane),
    /// A pane is not there any more.
    PaneGone(PaneId),
}

/// What changed from `before` to `after`.
#[must_use]
pub fn diff(before: &TmuxState, after: &TmuxState) -> Vec<Change> {
    let mut changes = Vec::new();
    if before.server != after.server {
        changes.push(Change::Server(after.server.clone()));
    }
    changes.extend(
        before.panes.keys().filter(|id| !after.panes.contains_key(id)).map(|id| Change::PaneGone(*id)),
    );
    let gone = before.sessions.keys().filter(|id| !after.sessions.contains_key(id));
    changes.extend(gone.map(|id| Change::SessionGone(*id)));
    let sessions = after.sessions.iter().filter(|(id, session)| before.sessions.get(id) != Some(session));
    changes.extend(sessions.map(|(id, session)| Change::Session(*id, session.clone())));
    let panes = after.panes.iter().filter(|(id, pane)| before.panes.get(id) != Some(pane));
    changes.extend(panes.map(|(id, pane)| Change::Pane(*id, pane.clone())));
    changes
}

impl TmuxState {
    /// Takes one change in.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Server(server) => self.server = server,
            Change::Session(id, session) => {
                self.sessions.insert(id, session);
            }
            Change::SessionGone(id) => {
                self.sessions.remove(&id);
            }
            Change::Pane(id, pane) => {
                self.panes.insert(id, pane);
            }
            Change::PaneGone(id) => {
                self.panes.remove(&id);
            }
        }
    }
}
