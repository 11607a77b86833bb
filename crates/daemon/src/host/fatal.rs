//! Why the daemon does not start, or ends.

use std::io;
use std::path::Path;

/// Why the daemon does not start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// Another daemon has this state directory.
    #[error("a poold runs already for this state directory (pid {0})")]
    AlreadyRunning(String),
    /// The configuration is wrong.
    #[error("configuration: {0}")]
    Config(String),
    /// A path or directory is not as it must be.
    #[error("{0}")]
    Path(#[from] protocol::paths::PathError),
    /// The database is damaged, full or failing.
    #[error("database: {0}")]
    Storage(String),
    /// What is to be made is there already.
    #[error("{0}")]
    Exists(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Fatal {
    pub(crate) fn io(path: &Path, error: io::Error) -> Self {
        Self::Other(format!("{}: {error}", path.display()))
    }

    /// The exit code of `poold`, as in `poolctl`'s table.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::AlreadyRunning(_) | Self::Exists(_) => 4,
            Self::Config(_) | Self::Path(_) => 2,
            Self::Storage(_) => 9,
            Self::Other(_) => 1,
        }
    }
}
