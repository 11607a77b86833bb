//! What can go wrong in this crate.

use std::io;
use std::path::PathBuf;

use protocol::ids::ProcId;

/// Why a process could not be held, signalled or looked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Pid 0, pid 1, or the caller itself.
    #[error("pid {0} is never signalled")]
    Forbidden(u32),
    /// Its real user id is not ours.
    #[error("process {0} belongs to another user")]
    OtherUser(ProcId),
    /// Something lives on in the control group of what was ended, though no process of it is seen.
    #[error("something lives on in the control group {}", .0.display())]
    Populated(PathBuf),
    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    System {
        /// What was tried, as the words after "cannot".
        what: &'static str,
        /// Its answer.
        source: io::Error,
    },
}

impl Error {
    /// For `map_err`: what was tried.
    pub(crate) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
