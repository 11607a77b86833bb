//! What is asked about terminals.

use serde::{Deserialize, Serialize};

use crate::session::Size;
use crate::text::{OsBytes, SessionRef};

/// The most bytes of one [`Input`].
pub const INPUT_MAX: usize = 64 * 1024;

/// `attach`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// Which session.
    pub session: SessionRef,
    /// Look only.
    pub read_only: bool,
    /// The value of `TMUX` at the client, where it runs inside tmux.
    pub tmux_env: Option<OsBytes>,
    /// Open a window there instead of nesting.
    pub window: bool,
}

/// `keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// To which session.
    pub session: SessionRef,
    /// Key names as tmux knows them (`C-c`, `Enter`), or single characters.
    pub keys: Vec<String>,
}

/// `capture`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capture {
    /// Of which session.
    pub session: SessionRef,
    /// How far back.
    pub extent: Extent,
    /// With colours and attributes.
    pub ansi: bool,
}

/// How much of a screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extent {
    /// What is visible.
    Visible,
    /// The last so many lines, scrollback included.
    Last(u32),
    /// The whole scrollback.
    All,
}

/// What a session writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Which session.
    pub session: SessionRef,
    /// From this byte of its log on; from now on, where nothing is said.
    pub from: Option<u64>,
}

/// Bytes into a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Of which session.
    pub session: SessionRef,
    /// As they are, at most [`INPUT_MAX`].
    pub bytes: OsBytes,
}

/// Another size for a terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Of which session.
    pub session: SessionRef,
    /// The size.
    pub size: Size,
}
