//! Access to the files of a log. A program in the session can replace any of them, so opening one neither
//! blocks on a FIFO nor follows a symbolic link.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::fcntl::OFlag;

use crate::runtime::untrusted_file;

/// Opens a file of a log for reading.
///
/// # Errors
/// The file cannot be opened, or is a symbolic link or not a regular file.
pub fn open_file(path: &Path) -> io::Result<File> {
    open_with(OpenOptions::new().read(true), path)
}

/// Like [`open_file`], with these options.
pub(super) fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    untrusted_file::open_regular(options, OFlag::O_NOFOLLOW, path).map(|(file, _)| file)
}

/// Returns options for appending to a private file.
pub(super) fn appending() -> OpenOptions {
    OpenOptions::new().append(true).mode(0o600).clone()
}

/// True if another process holds a lock on the file.
pub(super) fn is_locked(path: &Path) -> bool {
    open_file(path).is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
