//! Why there is no `poold` to serve.

use protocol::{ConnectError, ErrorCode, Refusal, TransportError};

/// How a connection ended, or a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There was none.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It was lost, or nothing came in time.
    #[error(transparent)]
    Lost(#[from] TransportError),
    /// `poold` refused what was asked.
    #[error("poold refuses: {0}")]
    Refused(#[from] Refusal),
}

impl Error {
    /// Whether trying again is of no use: this program has to be upgraded, or belongs elsewhere.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Connect(ConnectError::Version { .. }) => true,
            Self::Connect(ConnectError::Refused(refusal)) => refusal.code == ErrorCode::Protocol,
            _ => false,
        }
    }
}
