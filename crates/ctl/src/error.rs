//! The error of a command. Every error that a user sees is a [`Refusal`]: a code of the closed list, and a
//! sentence. A failure to write the output is apart, as no sentence can be printed then.

use std::io;

use protocol::{ErrorCode, Refusal};

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A refusal by the daemon, or by this program.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Standard output cannot be written.
    #[error("cannot write the output: {0}")]
    Output(io::Error),
}

impl Error {
    /// The error for a bad flag, name or value.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Refusal::usage(message).into()
    }

    /// The error for an operation that was tried and failed.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Refusal::failed(message).into()
    }

    /// The error for a wait that exceeded its time limit.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Refusal::timeout(message).into()
    }

    /// The error for an operation that is not possible in the present state.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Refusal::refused(message).into()
    }

    /// The error for something that does not exist.
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Refusal::not_found(message).into()
    }

    /// The error for a response that does not fit the request.
    pub(crate) fn unexpected(answer: &protocol::Response) -> Self {
        let answer = format!("{answer:?}");
        let shown = protocol::bounds::cut(&answer, 80);
        Refusal::protocol(format!("poold gave an unexpected answer: {shown}")).into()
    }

    /// Says what was done, where the output that should have told it cannot be written.
    pub(crate) fn unless_written(self, done: &str) -> Self {
        match self {
            Self::Output(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Self::failed(format!("{done}, but the output cannot be written: {error}"))
            }
            other => other,
        }
    }

    /// The code of the error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::Output(_) => ErrorCode::Failed,
        }
    }
}
