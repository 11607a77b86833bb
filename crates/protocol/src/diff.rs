//! Differences between two observations of tmux: applying `diff(a, b)` to `a` gives `b`.

use serde::{Deserialize, Serialize};

use crate::ids::{PaneId, TmuxSessionId};
use crate::tmux::{Server, TmuxPane, TmuxSession, TmuxState};

/// A single change. It carries the new value, so applying it twice has the same effect as once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Another server answers, or the result of asking it is another one.
    Server(Server),
    /// A session is new or changed.
    Session(TmuxSessionId, TmuxSession),
    /// A session is gone.
    SessionGone(TmuxSessionId),
    /// A pane is new or changed.
    Pane(PaneId, TmuxPane),
    /// A pane is gone.
    PaneGone(PaneId),
}

/// Returns the changes that lead from `before` to `after`.
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
    /// Applies one change.
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
