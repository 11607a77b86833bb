//! Readers that hold the session of a log: while one prints its output, poold does not remove the session by itself.
//! A reader has a shared lock (`flock`) on the session's directory. The lock ends with the reader, however that ends.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::access::open_directory;

/// Number of attempts to hold a session, and the interval between them: who asks whether it is held has its lock for a
/// moment.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(2);

/// Holds the session of a log until the returned file is dropped. `None` if that is not possible: then what is removed
/// meanwhile cannot be read to its end.
pub fn hold(dir: &Path) -> Option<File> {
    let session = open_session(dir)?;
    for _ in 1..TRIES {
        if session.try_lock_shared().is_ok() {
            return Some(session);
        }
        thread::sleep(PAUSE);
    }
    session.try_lock_shared().is_ok().then_some(session)
}

/// True if a reader holds the session of a log.
pub fn is_held(dir: &Path) -> bool {
    open_session(dir).is_some_and(|session| matches!(session.try_lock(), Err(TryLockError::WouldBlock)))
}

fn open_session(dir: &Path) -> Option<File> {
    open_directory(dir.parent()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_held_as_long_as_one_of_its_readers_exists() {
        let session = tempfile::tempdir().unwrap();
        let dir = session.path().join("logs");
        assert!(!is_held(&dir));
        let (one, two) = (hold(&dir).unwrap(), hold(&dir).unwrap());
        drop(one);
        assert!(is_held(&dir) && is_held(&dir));
        drop(two);
        assert!(!is_held(&dir));
        let gone = session.path().join("gone/logs");
        assert!(hold(&gone).is_none() && !is_held(&gone));
    }
}
