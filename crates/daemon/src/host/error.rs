//! The error with which the daemon does not start, or ends.

use std::io;
use std::path::Path;

/// The reason why the daemon does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// Another daemon holds the lock of this state directory.
    #[error("a poold runs already for this state directory (pid {0})")]
    AlreadyRunning(String),
    /// The configuration is invalid.
    #[error("configuration: {0}")]
    Config(String),
    /// A directory is missing, or its owner or permissions are unsafe.
    #[error("{0}")]
    Path(#[from] protocol::paths::PathError),
    /// The database is damaged, full or failing.
    #[error("database: {0}")]
    Storage(String),
    /// The target of an import, a backup or an export exists already.
    #[error("{0}")]
    Exists(String),
    /// An argument is wrong.
    #[error("{0}")]
    Usage(String),
    /// Any other failure.
    #[error("{0}")]
    Other(String),
}

impl DaemonError {
    /// An I/O error at a path.
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Other(format!("{}: {error}", path.display()))
    }

    /// Returns the exit code of `poold`, as in `poolctl`'s table.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::AlreadyRunning(_) | Self::Exists(_) => 4,
            Self::Config(_) | Self::Path(_) | Self::Usage(_) => 2,
            Self::Storage(_) => 9,
            Self::Other(_) => 1,
        }
    }
}
