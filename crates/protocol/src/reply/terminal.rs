//! Answers about terminals.

use serde::{Deserialize, Serialize};

use crate::session::Size;
use crate::text::OsBytes;

/// The state of a terminal. A viewer draws it first, then the bytes of the log from `offset`; some of these
/// may be on the screen already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// The size.
    pub size: Size,
    /// The visible lines with their colours, each ended by a line feed.
    pub screen: OsBytes,
    /// Column and row of the cursor, from 0.
    pub cursor: (u16, u16),
    /// True if the cursor is visible.
    pub cursor_shown: bool,
    /// True if the program uses the alternate screen, as full-screen programs do.
    pub alternate: bool,
    /// The title set by the program.
    pub title: String,
    /// The end of the session's log before the screen was read.
    pub offset: u64,
}

/// The answer to `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachCommand {
    /// The command line to execute.
    pub argv: Vec<OsBytes>,
    /// A sentence for people to show first, about nested tmux.
    pub hint: Option<String>,
}
