//! Programs that may be gone since the start, as after a removal of what was installed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::engine::Daemon;
use crate::host::blocking_pool::Purpose;
use crate::host::program_path;

/// Returns the problem of a program of the pool that is missing.
pub(crate) async fn own_problem(daemon: &Daemon) -> Option<String> {
    match init_problem(daemon).await {
        None => problem(daemon, &daemon.poolctl(), "agents' hooks and workers need it").await,
        found => found,
    }
}

/// Returns the problem of the sessions' init, if it is missing.
pub(crate) async fn init_problem(daemon: &Daemon) -> Option<String> {
    problem(daemon, &daemon.reaper_program, "no session starts without it").await
}

async fn problem(daemon: &Daemon, program: &Path, why: &str) -> Option<String> {
    if is_program(daemon, program).await {
        return None;
    }
    let (name, shown) = (program.file_name()?.display(), program.display());
    Some(format!(
        "the program {name} is not there ({shown}), and {why}: install it again, or, after an upgrade, `poolctl up`"
    ))
}

/// True if a program is there, and may be run. A directory that does not answer counts as one without it.
pub(crate) async fn is_program(daemon: &Daemon, program: &Path) -> bool {
    let program = program.to_owned();
    let look = move || {
        let is_path = program.is_absolute();
        let file = if is_path { program } else { program_path::find(&program.to_string_lossy()) };
        std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    daemon.blocking.with_timeout(Purpose::Housekeeping, look).await.unwrap_or(false)
}
