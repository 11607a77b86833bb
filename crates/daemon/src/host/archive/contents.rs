//! Contents of an archive, and the reasons for which there is none.

use std::io;
use std::path::{Path, PathBuf};

use protocol::SessionId;

/// What goes into an archive.
pub(crate) struct Contents<'a> {
    /// The directory of all sessions.
    pub(crate) sessions: &'a Path,
    /// What the pool itself keeps of each.
    pub(crate) meta: &'a Path,
    /// Whose directory there it is; it may be missing.
    pub(crate) session: SessionId,
    /// `session.json`.
    pub(crate) record: &'a [u8],
    /// `messages.jsonl`, some lines at a time.
    pub(crate) messages: &'a mut dyn FnMut() -> io::Result<Option<Vec<u8>>>,
    /// `work/`, too, and whatever else a purge removes, but for `tmp/`.
    pub(crate) work: bool,
}

/// Why there is no archive. Nothing is left of it then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// It has to be one plain file name.
    #[error("{0:?} cannot be the name of an archive")]
    Name(String),
    /// Nothing is ever overwritten.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// Of what should go into it.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Its path in the archive.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// A full disk, mostly.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The archive, or its directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The disk did not give back what it got.
    #[error("{} was not read again as it was written: {what}", .path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}
