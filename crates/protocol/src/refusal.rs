//! Refusals: a closed list of codes, each with its exit code, and a sentence for people.

use serde::{Deserialize, Serialize};

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
}

/// Defines a constructor of [`Refusal`] for each error code.
macro_rules! constructors {
    ($($name:ident: $code:ident),+ $(,)?) => {
        impl Refusal {$(
            #[doc = concat!("Creates a refusal with [`ErrorCode::", stringify!($code), "`].")]
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(ErrorCode::$code, message)
            }
        )+}
    };
}

constructors! {
    failed: Failed, usage: Usage, not_found: NotFound, conflict: Conflict, refused: Refused, timeout: Timeout,
    unavailable: Unavailable, protocol: Protocol, storage: Storage,
}

/// The closed list of error codes. The numbers are the exit codes of `poolctl`; on the wire a code is its place in the
/// list, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The operation failed; the message says in which state.
    Failed = 1,
    /// A flag, name or value is invalid.
    Usage = 2,
    /// The session, message or other object does not exist.
    NotFound = 3,
    /// The object exists already or is locked by another holder, the token is stale, or the operation id was
    /// used for another request.
    Conflict = 4,
    /// The pool or a queue is full, disk or memory is short, or the session takes no new messages.
    Refused = 5,
    /// The wait timed out; the operation may still finish.
    Timeout = 6,
    /// There is no daemon, or tmux is missing or does not answer.
    Unavailable = 7,
    /// The versions do not match, or the bytes are not this protocol.
    Protocol = 8,
    /// The database is damaged, full or failing. The request may be stored: retry it with the same operation
    /// id.
    Storage = 9,
}

crate::names!(ErrorCode:
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
        self as u8
    }
}
