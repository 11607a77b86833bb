//! Answers about what sessions use and what bounds them.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::life::Usage;
use crate::text::{Name, OsBytes};

/// What a session uses now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// Which session.
    pub session: SessionId,
    /// Its name.
    pub name: Name,
    /// What it uses.
    pub usage: Usage,
}

/// What was pruned, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pruned {
    /// Sessions.
    pub sessions: Vec<(SessionId, Name)>,
    /// Directories that belonged to no session any more.
    pub directories: Vec<OsBytes>,
    /// Bytes that came free.
    pub bytes: u64,
    /// What could not be removed, each a sentence.
    pub failed: Vec<String>,
}

/// What room there is for sessions, and how they can be bounded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Room {
    /// Sessions and requests that wait for a slot.
    pub waiting: u64,
    /// Memory that is available, in bytes, where the system tells.
    pub memory: Option<u64>,
    /// Terminals in use, and how many there may be, where the system tells.
    pub terminals: Option<(u64, u64)>,
    /// The control group below which each incarnation gets one of its own.
    pub cgroup: Option<OsBytes>,
    /// What can be bounded there: `memory`, `pids`, `cpu`.
    pub controllers: Vec<String>,
    /// Why memory, tasks or CPU share cannot be bounded by control groups, where that is so.
    pub without: Option<String>,
}
