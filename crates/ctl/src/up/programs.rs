//! The pool's other programs: where they are, and what environment they get.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use protocol::socket::Paths;

use crate::error::Error;

/// What a daemon may be told through its environment, beside where its pool is.
const PASSED: [&str; 3] = ["POOL_CONFIG", "POOL_LOG", "POOL_BIN_DIR"];

/// A program of the pool: in `POOL_BIN_DIR`, else beside this one, else wherever `PATH` has it.
#[must_use]
pub(crate) fn find(name: &str) -> PathBuf {
    let given = std::env::var_os("POOL_BIN_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(name)).filter(|path| path.exists());
    match given {
        Some(dir) => dir.join(name),
        None => beside().unwrap_or_else(|| name.into()),
    }
}

/// This program.
#[must_use]
pub(crate) fn this() -> PathBuf {
    std::env::current_exe().unwrap_or_else(|_| "poolctl".into())
}

/// Gives a program the pool that is meant here, and nothing of the session or the service manager
/// that this one runs in.
pub(crate) fn environment(command: &mut Command, paths: &Paths) {
    process::env::scrub(command);
    command.env("POOL_NAME", paths.pool.as_str());
    command.env("POOL_STATE_DIR", &paths.state);
    command.env("POOL_SOCKET", &paths.socket);
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

/// Becomes `poold` for a task that it does while no daemon runs. Does not return where that works.
pub(crate) fn become_poold(paths: &Paths, args: &[&OsStr]) -> Error {
    let program = find("poold");
    let mut command = Command::new(&program);
    environment(&mut command, paths);
    let error = command.args(args).exec();
    Error::failed(format!("cannot run {}: {error}", program.display()))
}
