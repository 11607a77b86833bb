//! The frames of the watcher.

use serde::{Deserialize, Serialize};

use crate::diff::Change;
use crate::tmux::TmuxState;

/// A frame of the watcher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// A random number for each run of a watcher.
    pub watcher: u64,
    /// Sequence number within the run, from 1. After a gap `poold` requests a snapshot.
    pub seq: u64,
    /// The number of the [`crate::reply::WatcherCommand::Snapshot`] that this answers, or 0.
    pub asked: u64,
    /// Time between the begin of the listing and the sending, in milliseconds. Anything younger may be
    /// missing.
    pub age_ms: u64,
    /// Time of the sending: milliseconds since the boot without time asleep. By it `poold` adds the time that
    /// the frame waited to be read; without it, the frame counts as sent when it is read.
    #[serde(default)]
    pub sent_at_ms: Option<u64>,
    /// True if the view comes from a listing of the whole server, so that anything missing in it is absent.
    /// Otherwise only what a diff names was read.
    pub complete: bool,
    /// The observation.
    pub view: View,
}

/// An observation, whole or as changes since the last frame.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum View {
    /// A snapshot. One that does not fit a frame is sent in parts, which are joined before it is applied.
    Snapshot {
        /// The state, or this part of it.
        state: TmuxState,
        /// The number of the part, from 0. A part counts only after all earlier ones.
        part: u32,
        /// True if more parts follow.
        more: bool,
    },
    /// Changes since the last frame.
    Diff(Vec<Change>),
    /// A complete listing showed no change.
    Unchanged,
    /// The server answers; nothing was listed.
    Alive,
}
