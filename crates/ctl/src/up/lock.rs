//! The lock of the one supervisor of a pool. Held as long as it lives, whatever ends it; the file
//! says who holds it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use process::file;
use protocol::ProcId;

/// The lock, until it is dropped. The holder's name goes with it, but stays of one that is killed.
#[derive(Debug)]
pub(crate) struct Held {
    file: Flock<File>,
}

impl Drop for Held {
    fn drop(&mut self) {
        // A name that stays is that of a process that has ended.
        drop(self.file.set_len(0));
    }
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
    write_me(&mut file)?;
    Ok(Some(Held { file }))
}

/// Takes the lock as soon as the one who has it lets go.
///
/// # Errors
/// As [`take`].
pub(crate) fn wait_for(path: &Path) -> io::Result<Held> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| io::Error::from(error))?;
    write_me(&mut file)?;
    Ok(Held { file })
}

/// Written before it is cut: on a full disk the room that the last name had is there.
fn write_me(file: &mut File) -> io::Result<()> {
    let me = serde_json::to_string(&process::identity::me()?)?;
    file.write_all(me.as_bytes())?;
    file.set_len(me.len() as u64)
}

impl Held {
    /// Tells whether this path still leads to the locked file. It does not once the pool's directory was removed.
    #[must_use]
    pub(crate) fn is_in_place(&self, path: &Path) -> bool {
        let found = (std::fs::symlink_metadata(path), self.file.metadata());
        matches!(found, (Ok(there), Ok(mine)) if file::id(&there) == file::id(&mine))
    }
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
    // Read before the look at the lock: what was written by a holder that still is one.
    named(path).filter(|_| is_held(path))
}

/// Whether the last holder was killed: it is still named, and has ended.
#[must_use]
pub(crate) fn is_orphaned(path: &Path) -> bool {
    let ended = |id| process::identity::exited(id).unwrap_or(false);
    named(path).is_some_and(|id| !is_held(path) && ended(id))
}

fn named(path: &Path) -> Option<ProcId> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
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
        assert!(!is_held(&path) && holder(&path).is_none());
        assert!(take(&path).unwrap().is_some());
    }

    #[test]
    fn one_that_was_killed_is_still_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        assert!(!is_orphaned(&path));
        drop(take(&path).unwrap());
        assert!(!is_orphaned(&path), "it ended as it should");
        let me = process::identity::me().unwrap();
        std::fs::write(&path, serde_json::to_string(&me).unwrap()).unwrap();
        assert!(!is_orphaned(&path), "it lives");
        let other = ProcId { start: me.start + 1, ..me };
        std::fs::write(&path, serde_json::to_string(&other).unwrap()).unwrap();
        assert!(is_orphaned(&path) && holder(&path).is_none());
    }
}
