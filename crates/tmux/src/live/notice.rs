//! Events of a connection: notifications and readings.

use protocol::{PaneId, TmuxSessionId, WindowId};

use crate::query::{Reading, Scope};

/// Notification: a place where something may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// A session was created or closed.
    Sessions,
    /// This session has another name, other windows or other clients.
    Session(TmuxSessionId),
    /// This window was created, or has other panes.
    Window(WindowId),
    /// This window was closed, or unlinked from a session.
    Closed(WindowId),
    /// This pane entered or left a mode.
    Pane(PaneId),
    /// A client detached; its session is not named.
    Clients,
}

/// Event of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LiveEvent {
    /// A notification.
    Notice(Notice),
    /// The answer to the oldest pending read.
    Read(Scope, Reading),
}
