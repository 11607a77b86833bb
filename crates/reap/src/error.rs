//! Errors of the connection to `poold`.

use protocol::{ConnectError, ErrorCode, Refusal, TransportError};

/// Reason for the end of a connection, or the failure of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// Connecting failed.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The connection was lost, or timed out.
    #[error(transparent)]
    Lost(#[from] TransportError),
    /// `poold` refused a request.
    #[error("poold refuses: {0}")]
    Refused(#[from] Refusal),
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
}
