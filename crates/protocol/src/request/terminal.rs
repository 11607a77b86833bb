//! Requests about terminals.

use serde::{Deserialize, Serialize};

use crate::session::Size;
use crate::text::{OsBytes, SessionRef};

/// Maximum length of one [`Input`], in bytes.
pub const INPUT_MAX: usize = 64 * 1024;

/// `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The session.
    pub session: SessionRef,
    /// Attaches without sending keys to the session.
    pub read_only: bool,
    /// The value of the client's `TMUX` variable, if it runs inside tmux.
    pub tmux_env: Option<OsBytes>,
    /// The path of the client's terminal.
    pub terminal: Option<OsBytes>,
    /// Opens a window in the client's tmux instead of nesting.
    pub window: bool,
    /// Maximum waiting time for a slot, in milliseconds; the configured one if absent.
    pub wait_slot_ms: Option<u64>,
}

/// `keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// The session.
    pub session: SessionRef,
    /// tmux's names of keys (`C-c`, `Enter`), or single characters.
    pub keys: Vec<String>,
}

/// `capture`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// The session.
    pub session: SessionRef,
    /// The part of the screen and its history.
    pub extent: Extent,
    /// Includes colours and attributes.
    pub ansi: bool,
}

/// A part of a screen and its history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// The visible lines.
    Visible,
    /// The last lines, including the history.
    Last(u32),
    /// The whole history and the visible lines.
    All,
}

/// A subscription to a session's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// The session.
    pub session: SessionRef,
    /// The offset in the log at which to begin; defaults to its end.
    pub from: Option<u64>,
}

/// Input for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The session.
    pub session: SessionRef,
    /// The bytes, sent unchanged; at most [`INPUT_MAX`].
    pub bytes: OsBytes,
}

/// A new size of a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// The session.
    pub session: SessionRef,
    /// The size.
    pub size: Size,
}
