//! Requests about locks.

use serde::{Deserialize, Serialize};

use crate::text::SessionRef;

/// `lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// The session.
    pub session: SessionRef,
    /// The purpose, for people: the command.
    pub purpose: String,
    /// Maximum waiting time, in milliseconds; unlimited if absent.
    pub wait_ms: Option<u64>,
    /// The lease, in milliseconds: the longest time without a renewal. Defaults to 60 s.
    pub lease_ms: Option<u64>,
    /// Revokes the lock of its current holder and precedes all waiting requests.
    pub force: bool,
}
