//! Directories that users name: they may be on a file system that does not answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use protocol::{OsBytes, Refusal, SessionId};

use crate::engine::Daemon;
use crate::host::blocking_pool::{Purpose, WORK_LIMIT};

/// Time limit for resolving a directory. A directory that does not answer is on another file system than the pool's own
/// files.
const RESOLVE_LIMIT: Duration = Duration::from_millis(500);

/// Refuses a path that is no directory, or does not answer.
pub(crate) async fn check(daemon: &Daemon, path: &Path) -> Result<(), Refusal> {
    let (dir, shown) = (path.to_owned(), path.display());
    let look = move || dir.is_dir();
    match daemon.blocking.one_at_a_time((Purpose::UserDirs, path), WORK_LIMIT, look).await {
        Some(true) => Ok(()),
        Some(false) => Err(Refusal::usage(format!("{shown} is not a directory"))),
        None => Err(Refusal::failed(format!("{shown} does not answer"))),
    }
}

/// Checks the working directory of a session, as [`check`] does; its own one is made by its launch.
pub(crate) async fn check_cwd(daemon: &Daemon, (id, cwd): (SessionId, &OsBytes)) -> Result<(), Refusal> {
    let cwd = cwd.as_path();
    if cwd.starts_with(daemon.paths.session(id)) {
        return Ok(());
    }
    check(daemon, cwd).await?;
    if daemon.removals.is_empty() {
        return Ok(());
    }
    let real = resolved(daemon, vec![cwd.to_owned()]).await;
    if daemon.removals.covers(cwd) || real.iter().any(|real| daemon.removals.covers(real)) {
        return Err(Refusal::failed(format!("{} is being removed", cwd.display())));
    }
    Ok(())
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
