//! Answers about reap rules and removals.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::reap::{Action, Rule};
use crate::text::{Name, OsBytes};
use crate::time::Timestamp;

/// The result of a reap rule for a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explained {
    /// The rule.
    pub rule: Rule,
    /// The action if the rule applies.
    pub action: Action,
    /// The origin of the action: `session`, `agent`, `configuration` or `default`.
    pub by: String,
    /// True if the rule applies now.
    pub applies: bool,
    /// A sentence that explains the result.
    pub why: String,
    /// The time at which the rule would apply if nothing changes, if known.
    pub at: Option<Timestamp>,
}

/// The result of a pruning, or of its dry run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pruned {
    /// The sessions removed.
    pub sessions: Vec<(SessionId, Name)>,
    /// Directories removed that belonged to no session any more.
    pub directories: Vec<OsBytes>,
    /// Space freed, in bytes.
    pub bytes: u64,
    /// Failures, as sentences.
    pub failed: Vec<String>,
    /// Sessions that have ended and are kept, because messages wait there; with the number of messages.
    pub kept: Vec<(SessionId, Name, u64)>,
}
