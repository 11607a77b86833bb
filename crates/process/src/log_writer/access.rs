//! Access to the files of a log. A program in the session can replace any of them, so opening one neither
//! blocks on a FIFO nor follows a symbolic link.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
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

/// True if the error is due to the file, which is damaged or was replaced by something else, and not to this process or
/// the system: it can then never be read.
pub fn is_damage(error: &io::Error) -> bool {
    let replaced = [Errno::ELOOP, Errno::ENXIO, Errno::ENODEV].map(|errno| Some(errno as i32));
    matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof)
        || replaced.contains(&error.raw_os_error())
}

/// True if another process holds a lock on the file, or may hold one on a file that cannot be opened.
pub(super) fn is_locked(path: &Path) -> bool {
    match open_file(path) {
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(error) => error.kind() != ErrorKind::NotFound && !is_damage(&error),
    }
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_opened_may_be_locked_and_one_that_is_no_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_locked(&path));
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(!is_locked(&path), "it was replaced");
        assert!(is_locked(&dir.path().join("n".repeat(300))), "the system refuses to look");
        assert!(!is_damage(&Errno::EMFILE.into()) && !is_damage(&Errno::EACCES.into()));
    }
}
