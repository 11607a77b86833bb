//! The lock of a pool's only supervisor. The system releases it at the end of the process, however that ends;
//! the file names the holder.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use process::identity::State;
use process::runtime::untrusted_file;
use protocol::{OsBytes, ProcId};
use serde::{Deserialize, Serialize};

/// The held lock; dropping it releases it and removes the holder's name. The name of a killed holder stays in
/// the file.
#[derive(Debug)]
pub(crate) struct SupervisorLock {
    file: Flock<File>,
}

impl Drop for SupervisorLock {
    fn drop(&mut self) {
        // Overwritten by spaces, which name nobody: truncated, the file would give its block away, and on a full disk
        // the next supervisor could not start. If this fails, it keeps the name of a process that has ended, which
        // harms nothing.
        let blank = |length: u64| self.file.write_all_at(" ".repeat(length as usize).as_bytes(), 0);
        drop(self.file.metadata().and_then(|found| blank(found.len())));
    }
}

/// The settings with which a supervisor was started, for the one that replaces it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Terms {
    /// The version of its program.
    pub build: Option<String>,
    pub pool: Option<String>,
    /// The socket at which its `poold` listens.
    pub socket: Option<OsBytes>,
    /// The configuration file, if it was named.
    pub config: Option<OsBytes>,
    /// The limit of its watchdog, in milliseconds.
    pub watchdog_ms: Option<u64>,
    /// True if somebody else supervises it (`up --foreground`).
    pub is_foreground: bool,
}

/// The contents of the file.
#[derive(Serialize, Deserialize)]
struct Named {
    #[serde(flatten)]
    process: ProcId,
    #[serde(flatten)]
    terms: Terms,
}

/// Acquires the lock; `None` if another process holds it.
pub(crate) fn try_acquire(path: &Path, terms: &Terms) -> io::Result<Option<SupervisorLock>> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let mut file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(file) => file,
        Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
        Err((_, error)) => return Err(error.into()),
    };
    let me = Named { process: process::identity::me()?, terms: terms.clone() };
    let me = serde_json::to_string(&me)?;
    // The name is written before the file is truncated, so that on a full disk the blocks of the previous name, or of
    // what has overwritten it, are reused.
    file.write_all(me.as_bytes())?;
    file.set_len(me.len() as u64)?;
    Ok(Some(SupervisorLock { file }))
}

impl SupervisorLock {
    /// True if this path still leads to the locked file; false once the pool's directory was removed.
    pub(crate) fn is_in_place(&self, path: &Path) -> bool {
        let found = (std::fs::symlink_metadata(path), self.file.metadata());
        matches!(found, (Ok(there), Ok(mine)) if untrusted_file::id(&there) == untrusted_file::id(&mine))
    }
}

/// True if a process holds the lock.
pub(crate) fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

/// The holder of the lock; `None` if it is free, or the holder has not written its name yet.
pub(crate) fn holder(path: &Path) -> Option<ProcId> {
    // Read before the lock is tested, so that the name is that of a process that still holds it.
    named(path).map(|named| named.process).filter(|_| is_held(path))
}

/// The process id of the holder, if that process is stopped by a signal or a tracer, so that it keeps no daemon
/// running.
pub(crate) fn stopped_holder(path: &Path) -> Option<u32> {
    let is_stopped = |id: &ProcId| matches!(process::identity::state(*id), Ok(State::Stopped));
    holder(path).filter(is_stopped).map(|id| id.pid)
}

/// The terms on which the holder of the lock was started.
pub(crate) fn terms(path: &Path) -> Terms {
    named(path).filter(|_| is_held(path)).map(|named| named.terms).unwrap_or_default()
}

/// The terms on which the holder of the lock was started, or, if the last holder was killed, the terms of that one.
pub(crate) fn last_terms(path: &Path) -> Terms {
    named(path).filter(|_| is_held(path) || is_orphaned(path)).map(|named| named.terms).unwrap_or_default()
}

/// True if the last holder was killed: the file still names it, and it has ended.
pub(crate) fn is_orphaned(path: &Path) -> bool {
    let ended = |id| process::identity::exited(id).unwrap_or(false);
    named(path).is_some_and(|named| !is_held(path) && ended(named.process))
}

fn named(path: &Path) -> Option<Named> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes the file as a killed holder leaves it.
#[cfg(test)]
pub(crate) fn leave_orphaned(path: &Path, terms: &Terms) {
    let me = process::identity::me().unwrap();
    let named = Named { process: ProcId { start: me.start + 1, ..me }, terms: terms.clone() };
    std::fs::write(path, serde_json::to_string(&named).unwrap()).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        assert!(!is_held(&path) && holder(&path).is_none());
        let held = try_acquire(&path, &Terms::default()).unwrap().unwrap();
        assert!(try_acquire(&path, &Terms::default()).unwrap().is_none());
        assert_eq!(holder(&path), Some(process::identity::me().unwrap()));
        drop(held);
        assert!(!is_held(&path) && holder(&path).is_none());
        let (build, pool) = (Some("1".to_owned()), Some("p".to_owned()));
        let (socket, config) = (Some("/s".into()), Some("/c".into()));
        let terms = Terms { build, pool, socket, config, watchdog_ms: Some(5), is_foreground: true };
        let held = try_acquire(&path, &terms).unwrap().unwrap();
        assert_eq!(super::terms(&path), terms);
        // The record of an earlier build has no settings.
        std::fs::write(&path, serde_json::to_string(&process::identity::me().unwrap()).unwrap()).unwrap();
        assert_eq!(super::terms(&path), Terms::default());
        assert_eq!(holder(&path), Some(process::identity::me().unwrap()));
        drop(held);
    }

    #[test]
    fn a_free_lock_names_nobody_and_keeps_its_place_on_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        let terms = Terms { build: Some("a long name".to_owned()), ..Terms::default() };
        drop(try_acquire(&path, &terms).unwrap().unwrap());
        let kept = std::fs::metadata(&path).unwrap().len();
        assert!(kept > 0 && named(&path).is_none());
        let held = try_acquire(&path, &Terms::default()).unwrap().unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < kept, "nothing of the spaces is left");
        assert_eq!(holder(&path), Some(process::identity::me().unwrap()));
        drop(held);
    }

    #[test]
    fn one_that_was_killed_is_still_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("up.lock");
        assert!(!is_orphaned(&path));
        drop(try_acquire(&path, &Terms::default()).unwrap());
        assert!(!is_orphaned(&path), "a regular end");
        let me = process::identity::me().unwrap();
        std::fs::write(&path, serde_json::to_string(&me).unwrap()).unwrap();
        assert!(!is_orphaned(&path), "the holder lives");
        let terms = Terms { watchdog_ms: Some(5), ..Terms::default() };
        leave_orphaned(&path, &terms);
        assert!(is_orphaned(&path) && holder(&path).is_none());
        assert_eq!((super::terms(&path), last_terms(&path)), (Terms::default(), terms));
    }
}
