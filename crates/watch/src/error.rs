//! Why nobody can be told.

use protocol::{ConnectError, ErrorCode, Refusal, TransportError};

/// How a connection ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There was none.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It was lost, or nothing came in time.
    #[error(transparent)]
    Lost(#[from] TransportError),
    /// The output cannot be written.
    #[error("cannot print: {0}")]
    Print(#[source] std::io::Error),
    /// Nothing can be watched.
    #[error("cannot watch: {0}")]
    Start(#[source] std::io::Error),
    /// `poold` wants no observations from here.
    #[error("poold refuses this watcher: {0}")]
    Refused(Refusal),
}

impl Error {
    /// Whether trying again is of no use: this program has to be upgraded, or belongs elsewhere.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Version { .. }) => true,
            Self::Connect(ConnectError::Refused(refusal)) | Self::Refused(refusal) => {
                refusal.code == ErrorCode::Protocol
            }
            _ => false,
        }
    }

    /// Whether another watcher serves this pool.
    pub(crate) fn is_second(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Refused(refusal)) | Self::Refused(refusal) => {
                refusal.code == ErrorCode::Conflict
            }
            _ => false,
        }
    }
}
