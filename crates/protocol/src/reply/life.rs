//! Answers about what sessions use and what bounds them.

use serde::{Deserialize, Serialize};

use crate::ids::{ProcId, SessionId, Token};
use crate::life::Usage;
use crate::reap::{Action, Rule};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

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

/// A lock that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// Whose lock.
    pub session: SessionId,
    /// The fencing token: what is done under the lock carries it ([`crate::Call::lock`]).
    pub token: Token,
    /// How long its holder may be silent, in milliseconds.
    pub lease_ms: u64,
}

/// Who holds a session's lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockView {
    /// The fencing token.
    pub token: Token,
    /// What for: an operation of the pool's own, or the command of whoever holds it.
    pub purpose: String,
    /// The process that holds it; none for the pool's own operations.
    pub holder: Option<ProcId>,
    /// Since when, where it is a user's.
    pub since: Option<Timestamp>,
    /// When its lease is over, where it is a user's.
    pub expires_at: Option<Timestamp>,
    /// What is done under it now.
    pub inner: Option<String>,
    /// How many wait for it.
    pub waiting: u64,
}

/// What a rule says of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// Which rule.
    pub rule: Rule,
    /// What becomes of it where the rule applies.
    pub action: Action,
    /// Who says so: `session`, `agent`, `configuration` or `default`.
    pub by: String,
    /// Whether it applies now.
    pub applies: bool,
    /// Why, or why not, a sentence.
    pub why: String,
    /// When it would apply if nothing changes, where that is known.
    pub at: Option<Timestamp>,
}
