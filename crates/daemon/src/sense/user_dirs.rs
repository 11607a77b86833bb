//! Directories that users name: they may be on a file system that does not answer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::engine::Daemon;
use crate::host::blocking_pool::{Purpose, WORK_LIMIT};

/// True if this is a directory; `None` if it does not answer.
pub(crate) async fn is_directory(daemon: &Daemon, path: &Path) -> Option<bool> {
    let dir = path.to_owned();
    let look = move || dir.is_dir();
    daemon.blocking.one_at_a_time((Purpose::UserDirs, path), WORK_LIMIT, look).await
}

/// Returns directories without symbolic links; one that does not exist, or does not answer, as it is.
pub(crate) async fn resolved(daemon: &Daemon, dirs: Vec<PathBuf>) -> Vec<PathBuf> {
    let found = Arc::new(Mutex::new(dirs.clone()));
    let result = Arc::clone(&found);
    let work = move || {
        for (n, dir) in dirs.iter().enumerate() {
            let Ok(real) = dir.canonicalize() else { continue };
            result.lock().unwrap_or_else(PoisonError::into_inner)[n] = real;
        }
    };
    let all = daemon.paths.sessions.as_path();
    daemon.blocking.one_at_a_time((Purpose::UserDirs, all), WORK_LIMIT, work).await;
    let found = found.lock().unwrap_or_else(PoisonError::into_inner);
    found.clone()
}
