//! Access to the files of a log. A program in the session can replace any of them, so opening one neither
//! blocks on a FIFO nor follows a symbolic link.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use protocol::SessionId;

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

/// Opens a directory. Non-blocking, in case a FIFO is in its place; a link is an error.
pub(super) fn open_directory(dir: &Path) -> io::Result<File> {
    let flags = (OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW).bits();
    OpenOptions::new().read(true).custom_flags(flags).open(dir)
}

/// Number of directories that a session's program can replace: its own, that of its log, and that of its standard
/// error's log.
const REPLACEABLE: usize = 3;

/// Fails if this directory of a log, or one above it up to the session's, is a link: a program in the session made it,
/// and it may lead to the log of another session. Directories above the session's may be links.
pub fn refuse_links(dir: &Path) -> io::Result<()> {
    let session = dir.ancestors().take(REPLACEABLE).position(is_session_dir);
    match dir.ancestors().take(session.map_or(1, |above| above + 1)).find(|place| place.is_symlink()) {
        None => Ok(()),
        Some(link) => Err(io::Error::new(
            ErrorKind::NotADirectory,
            format!("{} is a link, and not followed: put the directory back in its place", link.display()),
        )),
    }
}

fn is_session_dir(dir: &Path) -> bool {
    dir.file_name().and_then(OsStr::to_str).is_some_and(|name| name.parse::<SessionId>().is_ok())
}

/// Returns options for appending to a private file.
pub(super) fn appending() -> OpenOptions {
    OpenOptions::new().append(true).mode(0o600).clone()
}

/// True if this process or the system lacks something now: the file itself may be read later. After any other error it
/// counts as damaged.
pub fn is_shortage(error: &io::Error) -> bool {
    let shortages = [Errno::EMFILE, Errno::ENFILE, Errno::ENOMEM, Errno::EINTR, Errno::EAGAIN];
    shortages.map(|errno| Some(errno as i32)).contains(&error.raw_os_error())
}

/// True if another process holds a lock on the file. What is no regular file is not locked.
///
/// # Errors
/// The file cannot be opened, so it may be locked.
pub(super) fn is_locked(path: &Path) -> io::Result<bool> {
    match open_file(path) {
        Ok(file) => Ok(matches!(file.try_lock(), Err(TryLockError::WouldBlock))),
        Err(error) if is_shortage(&error) || error.kind() == ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(false),
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
    fn what_is_no_file_is_not_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_locked(&path).unwrap());
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(!is_locked(&path).unwrap(), "it was replaced");
        assert!(is_shortage(&Errno::EMFILE.into()) && !is_shortage(&Errno::EACCES.into()));
    }
}
