//! The lock of the one supervisor of a pool. Held as long as it lives, whatever ends it; the file
//! says who holds it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use protocol::ProcId;

/// The lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    _file: Flock<File>,
}

/// Takes the lock; `None` where another process has it.
///
/// # Errors
/// The file cannot be made or written.
pub(crate) fn take(path: &Path) -> io::Result<Option<Held>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, error)) => return Err(error.into()),
    };
    let me = serde_json::to_string(&process::identity::me()?)?;
    file.set_len(0)?;
    file.write_all(me.as_bytes())?;
    Ok(Some(Held { _file: file }))
}

/// Whether somebody has the lock.
#[must_use]
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// Who has the lock. `None` where nobody has, or the holder has not written yet.
#[must_use]
pub(crate) fn holder(path: &Path) -> Option<ProcId> {
    let mut text = String::new();
    // Read before the look at the lock: what was written by a holder that still is one.
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    if is_held(path) { serde_json::from_str(&text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        assert!(!is_held(&path) && holder(&path).is_none());
        let held = take(&path).unwrap().unwrap();
        assert!(take(&path).unwrap().is_none());
        assert_eq!(holder(&path), Some(process::identity::me().unwrap()));
        drop(held);
        assert!(!is_held(&path) && holder(&path).is_none(), "what is written outlives its writer");
        assert!(take(&path).unwrap().is_some());
    }
}
