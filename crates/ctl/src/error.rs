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

/// Defines constructors of [`Error`] by those of [`Refusal`] with the same names.
macro_rules! refusals {
    ($($name:ident),+) => {
        impl Error {$(
            #[doc = concat!("See [`Refusal::", stringify!($name), "`].")]
            pub(crate) fn $name(message: impl Into<String>) -> Self {
                Refusal::$name(message).into()
            }
        )+}
    };
}

refusals!(usage, failed, timeout, refused, not_found);

impl Error {
    /// The error for a response that does not fit the request.
    pub(crate) fn unexpected(answer: &protocol::Response) -> Self {
        let answer = format!("{answer:?}");
        let shown = protocol::bounds::cut(&answer, 80);
        Refusal::protocol(format!("poold gave an unexpected answer: {shown}")).into()
    }

    /// Adds what was done, if the output that should have said it cannot be written.
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
