//! Directories that users name: they may be on a file system that does not answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::engine::Daemon;
use crate::host::blocking_pool::{Purpose, WORK_LIMIT};

/// Time in which a directory is resolved. What does not answer is on another file system than the pool's own files.
const RESOLVE_LIMIT: Duration = Duration::from_millis(500);

/// True if this is a directory; `None` if it does not answer.
pub(crate) async fn is_directory(daemon: &Daemon, path: &Path) -> Option<bool> {
    let dir = path.to_owned();
    let look = move || dir.is_dir();
    daemon.blocking.one_at_a_time((Purpose::UserDirs, path), WORK_LIMIT, look).await
}

/// Returns directories without symbolic links; one that does not exist, or does not answer, as it is.
pub(crate) async fn resolved(daemon: &Daemon, dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut real = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let path = dir.clone();
        let resolve = move || path.canonicalize().ok();
        let found = daemon.blocking.one_at_a_time((Purpose::UserDirs, &dir), RESOLVE_LIMIT, resolve).await;
        real.push(found.flatten().unwrap_or(dir));
    }
    real
}
