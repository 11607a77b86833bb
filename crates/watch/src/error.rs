//! Errors of reporting.

use protocol::{ConnectError, ErrorCode, Refusal, TransportError};

/// Reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection was lost, or timed out.
    #[error(transparent)]
    Lost(#[from] TransportError),
    /// The output could not be written.
    #[error("cannot print: {0}")]
    Print(#[source] std::io::Error),
    /// Watching could not be started.
    #[error("cannot watch: {0}")]
    Start(#[source] std::io::Error),
    /// `poold` refused an observation or this watcher.
    #[error("poold refuses this watcher: {0}")]
    Refused(Refusal),
}

impl Error {
    /// True if a retry is useless: this program has to be upgraded, or belongs to another pool.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Version { .. }) => true,
            Self::Connect(ConnectError::Refused(refusal)) | Self::Refused(refusal) => {
                refusal.code == ErrorCode::Protocol
            }
            _ => false,
        }
    }

    /// True if another watcher serves this pool.
    pub(crate) fn is_second(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Refused(refusal)) | Self::Refused(refusal) => {
                refusal.code == ErrorCode::Conflict
            }
            _ => false,
        }
    }
}
