//! The lock of a pool's only supervisor. The system releases it at the end of the process, however that ends;
//! the file names the holder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use process::runtime::untrusted_file;
use protocol::ProcId;

/// The held lock; dropping it releases it and removes the holder's name. The name of a killed holder stays in
/// the file.
#[derive(Debug)]
pub(crate) struct SupervisorLock {
    file: Flock<File>,
}

impl Drop for SupervisorLock {
    fn drop(&mut self) {
        // A name that stays names a process that has ended.
        drop(self.file.set_len(0));
    }
}

/// Acquires the lock; `None` if another process holds it.
pub(crate) fn try_acquire(path: &Path) -> io::Result<Option<SupervisorLock>> {
    lock(path, FlockArg::LockExclusiveNonblock)
}

/// Acquires the lock, waiting until its holder releases it.
pub(crate) fn acquire(path: &Path) -> io::Result<SupervisorLock> {
    lock(path, FlockArg::LockExclusive)?.ok_or_else(|| Errno::EWOULDBLOCK.into())
}

fn lock(path: &Path, arg: FlockArg) -> io::Result<Option<SupervisorLock>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut file = match Flock::lock(file, arg) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, error)) => return Err(error.into()),
    };
    let me = serde_json::to_string(&process::identity::me()?)?;
    // Written before the file is truncated: on a full disk the blocks of the previous name can be reused.
    file.write_all(me.as_bytes())?;
    file.set_len(me.len() as u64)?;
    Ok(Some(SupervisorLock { file }))
}

impl SupervisorLock {
    /// True if this path still leads to the locked file; false once the pool's directory was removed.
    #[must_use]
    pub(crate) fn is_in_place(&self, path: &Path) -> bool {
        let found = (std::fs::symlink_metadata(path), self.file.metadata());
        matches!(found, (Ok(there), Ok(mine)) if untrusted_file::id(&there) == untrusted_file::id(&mine))
    }
}

/// True if a process holds the lock.
#[must_use]
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// The holder of the lock; `None` if it is free, or the holder has not written its name yet.
#[must_use]
pub(crate) fn holder(path: &Path) -> Option<ProcId> {
    // Read before the lock is tested, so that the name is that of a process that still holds it.
    named(path).filter(|_| is_held(path))
}

/// True if the last holder was killed: the file still names it, and it has ended.
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
        let held = try_acquire(&path).unwrap().unwrap();
        assert!(try_acquire(&path).unwrap().is_none());
        assert_eq!(holder(&path), Some(process::identity::me().unwrap()));
        drop(held);
        assert!(!is_held(&path) && holder(&path).is_none());
        assert!(try_acquire(&path).unwrap().is_some());
    }

    #[test]
    fn one_that_was_killed_is_still_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        assert!(!is_orphaned(&path));
        drop(try_acquire(&path).unwrap());
        assert!(!is_orphaned(&path), "a regular end");
        let me = process::identity::me().unwrap();
        std::fs::write(&path, serde_json::to_string(&me).unwrap()).unwrap();
        assert!(!is_orphaned(&path), "the holder lives");
        let other = ProcId { start: me.start + 1, ..me };
        std::fs::write(&path, serde_json::to_string(&other).unwrap()).unwrap();
        assert!(is_orphaned(&path) && holder(&path).is_none());
    }
}
