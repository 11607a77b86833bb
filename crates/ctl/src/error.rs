//! What can go wrong in a command. Everything that a user meets is a [`Refusal`]: a code of the
//! closed list, and a sentence. Broken output is apart: nobody is left to read a sentence.

use std::io;

use protocol::{ErrorCode, Refusal};

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon's refusal, or one of this program's own.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

impl Error {
    /// A bad flag, name or value.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::Usage, message).into()
    }

    /// Tried, and failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::Failed, message).into()
    }

    /// The wait ran out.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::Timeout, message).into()
    }

    /// Not in this state of things.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::Refused, message).into()
    }

    /// No such thing.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Refusal::new(ErrorCode::NotFound, message).into()
    }

    /// An answer that does not belong to the request.
    pub(crate) fn unexpected(answer: &protocol::Response) -> Self {
        let shown: String = format!("{answer:?}").chars().take(80).collect();
        Refusal::new(ErrorCode::Protocol, format!("poold gave an unexpected answer: {shown}")).into()
    }

    /// The code under which it is reported.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Output(_) => ErrorCode::Failed,
        }
    }
}
