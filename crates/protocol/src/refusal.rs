//! Refusals: a closed list of codes, each with its exit code, and a sentence for people.

use serde::{Deserialize, Serialize};

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// What kind of refusal.
    pub code: ErrorCode,
    /// A sentence for people: what is wrong and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The closed list. Its numbers are `poolctl`'s exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// Tried, and failed; the message says what state was left.
    Failed,
    /// Bad flag, name or value.
    Usage,
    /// No such session, message, ….
    NotFound,
    /// Exists already, locked by somebody else, stale token, same operation id with other content.
    Conflict,
    /// Pool full, queue full, session closed to new messages.
    Refused,
    /// The wait ran out; the operation may still finish.
    Timeout,
    /// No daemon, or tmux missing or not answering.
    Unavailable,
    /// Versions that don't fit, or bytes that are not the protocol.
    Protocol,
    /// The database is damaged, full or failing; what was asked may be stored: repeat it with the same operation id.
    Storage,
}

impl ErrorCode {
    /// `poolctl`'s exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Conflict => 4,
            Self::Refused => 5,
            Self::Timeout => 6,
            Self::Unavailable => 7,
            Self::Protocol => 8,
            Self::Storage => 9,
        }
    }

    /// The word in JSON errors.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Refused => "refused",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Protocol => "protocol",
            Self::Storage => "storage",
        }
    }
}
