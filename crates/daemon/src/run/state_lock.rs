//! The lock of the state directory: one daemon a pool.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use process::runtime::untrusted_file;
use tokio::time::sleep;

use crate::host::error::DaemonError;

/// Time between two checks whether the state directory is still there.
const CHECK_PAUSE: Duration = Duration::from_secs(5);

/// Number of checks in a row that have to miss the file: a single one may fall into the moment in which it is
/// replaced.
const CHECKS: u32 = 2;

/// Number of tries before a lock counts as held by another daemon, and the pause after each: `poolctl` takes the lock
/// for a moment to test whether a daemon has it.
const TEST_TRIES: u32 = 3;
const TEST_PAUSE: Duration = Duration::from_millis(20);

/// The lock. Held as long as the daemon lives; the kernel releases it however the process ends.
pub(super) struct StateLock(#[expect(dead_code, reason = "the open file is the lock")] File);

/// Takes the lock, and writes the process id into its file.
///
/// # Errors
/// Another daemon holds it, or its file cannot be opened.
pub(super) fn lock(path: &Path) -> Result<StateLock, DaemonError> {
    let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let mut file = open.map_err(|e| DaemonError::io(path, e))?;
    match try_lock(&file) {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The pid is for the message alone.
            drop(file.read_to_string(&mut pid));
            return Err(DaemonError::AlreadyRunning(pid.trim().to_owned()));
        }
        Err(fs::TryLockError::Error(error)) => return Err(DaemonError::io(path, error)),
    }
    // Truncated after writing: a full disk still has the space of the old content.
    let me = std::process::id().to_string();
    let length = me.len() as u64;
    file.write_all(me.as_bytes())
        .and_then(|()| file.set_len(length))
        .map_err(|e| DaemonError::io(path, e))?;
    Ok(StateLock(file))
}

/// Tries to lock a file that `poolctl` may be testing for a moment.
fn try_lock(file: &File) -> Result<(), fs::TryLockError> {
    for _ in 0..TEST_TRIES {
        match file.try_lock() {
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(TEST_PAUSE),
            done => return done,
        }
    }
    file.try_lock()
}

/// Returns once the locked file is not at its path any more: the state directory was removed or replaced, and
/// no client finds this daemon.
pub(super) async fn removed(path: &Path) -> DaemonError {
    let identity = || fs::symlink_metadata(path).ok().map(|found| untrusted_file::id(&found));
    let mine = identity();
    let mut missed = 0;
    while missed < CHECKS {
        sleep(CHECK_PAUSE).await;
        missed = if identity() == mine { 0 } else { missed + 1 };
    }
    DaemonError::Other(format!(
        "{} was removed or replaced: this pool ends, its sessions live on in their tmux server",
        path.parent().and_then(Path::parent).unwrap_or(path).display()
    ))
}
