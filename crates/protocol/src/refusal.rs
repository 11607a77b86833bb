//! Refusals: a closed list of codes, each with its exit code, and a sentence for people.

use serde::{Deserialize, Serialize};

use crate::names::names;

/// The reason why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The error code.
    pub code: ErrorCode,
    /// A sentence for people: the problem and what to do about it.
    pub message: String,
}

impl Refusal {
    /// Creates a refusal.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Creates a refusal with [`ErrorCode::Failed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Failed, message)
    }

    /// Creates a refusal with [`ErrorCode::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Usage, message)
    }

    /// Creates a refusal with [`ErrorCode::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, message)
    }

    /// Creates a refusal with [`ErrorCode::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Conflict, message)
    }

    /// Creates a refusal with [`ErrorCode::Refused`].
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Refused, message)
    }

    /// Creates a refusal with [`ErrorCode::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, message)
    }

    /// Creates a refusal with [`ErrorCode::Timeout`].
    pub fn timeout(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Timeout, message)
    }

    /// Creates a refusal with [`ErrorCode::Storage`].
    pub fn storage(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Storage, message)
    }

    /// Creates a refusal with [`ErrorCode::Protocol`].
    pub fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Protocol, message)
    }
}

/// The closed list of error codes. Each has an exit code of `poolctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The operation failed; the message says in which state.
    Failed,
    /// A flag, name or value is invalid.
    Usage,
    /// The session, message or other object does not exist.
    NotFound,
    /// The object exists already or is locked by another holder, the token is stale, or the operation id was
    /// used for another request.
    Conflict,
    /// The pool or a queue is full, disk or memory is short, or the session takes no new messages.
    Refused,
    /// The wait timed out; the operation may still finish.
    Timeout,
    /// There is no daemon, or tmux is missing or does not answer.
    Unavailable,
    /// The versions do not match, or the bytes are not this protocol.
    Protocol,
    /// The database is damaged, full or failing. The request may be stored: retry it with the same operation
    /// id.
    Storage,
}

names!(ErrorCode:
    Failed = "failed",
    Usage = "usage",
    NotFound = "not_found",
    Conflict = "conflict",
    Refused = "refused",
    Timeout = "timeout",
    Unavailable = "unavailable",
    Protocol = "protocol",
    Storage = "storage",
);

impl ErrorCode {
    /// Returns the exit code of `poolctl`.
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
}
