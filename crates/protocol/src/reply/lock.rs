//! Answers about locks.

use serde::{Deserialize, Serialize};

use crate::ids::{ProcId, SessionId, Token};
use crate::time::Timestamp;

/// A granted lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Locked {
    /// The session.
    pub session: SessionId,
    /// The fencing token, which calls under the lock carry ([`crate::Call::lock`]).
    pub token: Token,
    /// The lease, in milliseconds: the longest time without a renewal.
    pub lease_ms: u64,
    /// True if the request was made under this lock, which its holder releases: here the lock is not granted once more.
    pub is_inside: bool,
}

/// The holder of a session's lock.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LockView {
    /// The fencing token.
    pub token: Token,
    /// The purpose: an operation of the pool itself, or the command of the user who holds it.
    pub purpose: String,
    /// The process that holds it; absent for the pool's own operations.
    pub holder: Option<ProcId>,
    /// The time of the grant, for a user's lock.
    pub since: Option<Timestamp>,
    /// The end of the lease, for a user's lock.
    pub expires_at: Option<Timestamp>,
    /// The operation in progress under it.
    pub inner: Option<String>,
    /// Number of waiting requests.
    pub waiting: u64,
}
