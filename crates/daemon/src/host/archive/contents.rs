//! The contents of an archive, and the errors of writing one.

use std::io;
use std::path::{Path, PathBuf};

use protocol::{SessionId, Timestamp};

/// The contents of an archive.
pub(crate) struct Contents<'a> {
    /// The directory of all sessions.
    pub(crate) sessions: &'a Path,
    /// The directory of the pool's own files of each session.
    pub(crate) meta: &'a Path,
    /// The session; its directory may be missing.
    pub(crate) session: SessionId,
    /// `session.json`.
    pub(crate) record: &'a [u8],
    /// `messages.jsonl`, some lines at a time; `None` at the end.
    pub(crate) messages: &'a mut dyn FnMut() -> io::Result<Option<Vec<u8>>>,
    /// Time of the archive.
    pub(crate) now: Timestamp,
    /// True to include `work/` and everything else that a purge removes, except `tmp/`.
    pub(crate) work: bool,
}

/// Maximum number of zero bytes that an archive stores in place of holes, or of the end of a file that shrank
/// meanwhile. Writing and verifying them takes some 10 s for each GiB, in which the session is locked.
pub(crate) const ZEROS_MAX: u64 = 4 << 30;

/// The reason why an archive was not written. No file is left then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArchiveError {
    /// The name is not a plain file name.
    #[error("{0:?} cannot be the name of an archive")]
    Name(String),
    /// The archive exists; nothing is overwritten.
    #[error("{} is there already", .0.display())]
    Exists(PathBuf),
    /// A part of the contents could not be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path in the archive.
        path: String,
        /// The cause.
        source: io::Error,
    },
    /// The files have more than [`ZEROS_MAX`] bytes in holes.
    #[error(
        "{path} is a sparse file, and the archive would hold over {} GiB of zeros: move or remove the file, or \
         leave out --archive",
        ZEROS_MAX >> 30
    )]
    Sparse {
        /// Path in the archive of the file with which there are too many.
        path: String,
    },
    /// The archive could not be written, mostly because the disk is full.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The archive, or its directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The disk returned other bytes than were written.
    #[error("{} reads back differently from what was written: {what}", .path.display())]
    Damaged {
        /// The archive.
        path: PathBuf,
        /// The difference.
        what: String,
    },
}
