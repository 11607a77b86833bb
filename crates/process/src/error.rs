//! The error type of this crate.

use std::io;
use std::path::PathBuf;

use protocol::ProcId;

/// Failure to open, signal or list processes.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Pid 0, pid 1, or the calling process.
    #[error("pid {0} is never signalled")]
    Forbidden(u32),
    /// Its real user id is not that of the caller.
    #[error("process {0} belongs to another user")]
    OtherUser(ProcId),
    /// The control group of an ended tree stays populated although no process of it is visible.
    #[error("processes are left in the control group {}", .0.display())]
    Populated(PathBuf),
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation, phrased to follow "cannot".
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

impl Error {
    /// Returns a converter for `map_err` that records the attempted operation.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
