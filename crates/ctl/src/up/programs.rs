//! The pool's other programs: where they are, and what environment they get.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use protocol::socket::Paths;
use protocol::{ErrorCode, Refusal};

use crate::context::Context;
use crate::error::Error;
use crate::exit;

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

/// This program, by the path that it has now: where its file was replaced while it runs, the new one.
#[must_use]
pub(crate) fn this() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_else(|_| "poolctl".into());
    let before = this.as_os_str().as_bytes().strip_suffix(b" (deleted)").map(OsStr::from_bytes);
    before.filter(|_| !this.exists()).map(PathBuf::from).unwrap_or(this)
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

/// Has `poold` do a task while no daemon runs: becomes it, so that it speaks to people by itself. For a program, what
/// it said is returned.
///
/// # Errors
/// It cannot be run; and for a program, why it failed.
pub(crate) fn have_poold(context: &Context, args: &[&OsStr]) -> Result<String, Error> {
    let program = find("poold");
    let mut command = Command::new(&program);
    environment(&mut command, &context.paths);
    command.args(args);
    let cannot = |error| Error::failed(format!("cannot run {}: {error}", program.display()));
    if !context.style.json {
        return Err(cannot(command.exec()));
    }
    // Its log has nothing but why it failed.
    let output = command.env("POOL_LOG", "error").stdin(Stdio::inherit()).output().map_err(cannot)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let code = output.status.code().and_then(exit::meaning).unwrap_or(ErrorCode::Failed);
    Err(Refusal::new(code, complaint(&String::from_utf8_lossy(&output.stderr), output.status)).into())
}

/// What a log says, without the time, the level and the place that its first line begins with.
pub(crate) fn complaint(log: &str, status: ExitStatus) -> String {
    let said =
        log.split_once(" ERROR ").and_then(|(_, rest)| rest.split_once(": ")).map_or(log, |(_, said)| said);
    let said = said.strip_prefix("poold: ").unwrap_or(said);
    if said.trim().is_empty() {
        format!("poold ended without a word: {status}")
    } else {
        said.trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_complaint_is_what_the_log_says() {
        let status = ExitStatus::from_raw(9);
        let log = "2026-01-01T00:00:00.000000Z ERROR poold: database: x:\n  one\n  two\n";
        assert_eq!(complaint(log, status), "database: x:\n  one\n  two");
        assert_eq!(complaint("poold: database: x\n", status), "database: x");
        assert_eq!(complaint("error: no such flag\n", status), "error: no such flag");
        assert!(complaint("", status).contains("signal: 9"));
    }
}
