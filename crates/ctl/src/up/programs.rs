//! The pool's other programs: their paths, and the environment that they get.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

use protocol::{ErrorCode, OsBytes, Paths, Refusal};
use serde_json::Value;

use crate::show::{hint, out};
use crate::{Context, Error, exit};

/// The variable that sets what a daemon logs.
const LOG: &str = "POOL_LOG";

/// The variable that names the directory of the programs.
const BIN_DIR: &str = "POOL_BIN_DIR";

/// The variable that names the configuration file, and the file of the supervisor that is replaced.
const CONFIG: &str = "POOL_CONFIG";
static KEPT_CONFIG: OnceLock<OsBytes> = OnceLock::new();

/// The path of a program of the pool: in `POOL_BIN_DIR`, else beside this one, else in `PATH`.
pub(crate) fn find(name: &str) -> PathBuf {
    let beside = || Some(std::env::current_exe().ok()?.parent()?.join(name)).filter(|path| path.exists());
    match named_path(BIN_DIR) {
        Some(dir) => dir.join(name),
        None => beside().unwrap_or_else(|| name.into()),
    }
}

/// The present path of this program. If its file was replaced while it runs, that is the path of the new
/// file.
pub(crate) fn this() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_else(|_| "poolctl".into());
    let before = this.as_os_str().as_bytes().strip_suffix(b" (deleted)").map(OsStr::from_bytes);
    before.filter(|_| !this.exists()).map(PathBuf::from).unwrap_or(this)
}

/// Sets the variables that name this pool, and removes those of the session or service manager that this
/// program runs in.
pub(crate) fn environment(command: &mut Command, paths: &Paths) {
    process::runtime::inherited_env::scrub(command);
    command.envs(paths.variables());
    command.envs(std::env::var_os(LOG).map(|level| (LOG, level)));
    command.envs(named_path(BIN_DIR).map(|dir| (BIN_DIR, dir)));
    if let Some(config) = config() {
        command.env(CONFIG, config.as_os_str());
    }
}

/// The configuration file that is named: by the user, else by the supervisor that is replaced.
pub(crate) fn config() -> Option<OsBytes> {
    named_path(CONFIG).map(OsBytes::from).or_else(|| KEPT_CONFIG.get().cloned())
}

/// The absolute path that a variable names, for programs that run in another directory.
fn named_path(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).filter(|path| !path.is_empty());
    named.and_then(|path| std::path::absolute(path).ok())
}

/// Keeps the configuration file of the supervisor that is replaced, unless the user names one.
pub(crate) fn keep_config(config: Option<OsBytes>) {
    // Set once: a command replaces one supervisor.
    config.into_iter().for_each(|config| drop(KEPT_CONFIG.set(config)));
}

/// A command of this pool's `poold`.
fn poold(context: &Context) -> Command {
    let mut command = Command::new(find("poold"));
    environment(&mut command, &context.paths);
    command
}

/// The error for a program that cannot be started.
fn not_run(command: &Command, error: io::Error) -> Error {
    Error::failed(format!("cannot run {}: {error}", command.get_program().display()))
}

/// Refuses if `poold` could not start with the configuration file as it is, so that this is reported at once and not
/// after many tries.
///
/// # Errors
/// A usage error with the defect.
pub(crate) fn check_config(context: &Context) -> Result<(), Error> {
    let output = output(context, &[OsStr::new("--check-config")])?;
    let is_defect = output.status.code() == Some(i32::from(ErrorCode::Usage.exit_code()));
    if is_defect { printed(&output).map(drop) } else { Ok(()) }
}

/// Runs a task of `poold`, and prints its answer: as text, or with `--json` in this document.
///
/// # Errors
/// It cannot be run, or its failure.
pub(crate) fn run_poold(
    context: &Context,
    args: &[&OsStr],
    document: impl FnOnce(&str) -> Value,
) -> Result<(), Error> {
    let said = poold_output(context, args)?;
    let said = hint::message(&said);
    if context.style.json { out::json(&document(&said)) } else { context.say(&said) }
}

/// Returns what a task of `poold` prints.
///
/// # Errors
/// It cannot be run, or its failure.
pub(crate) fn poold_output(context: &Context, args: &[&OsStr]) -> Result<String, Error> {
    printed(&output(context, args)?)
}

fn output(context: &Context, args: &[&OsStr]) -> Result<Output, Error> {
    let mut command = poold(context);
    // Only errors are logged, so that the log is the reason of a failure.
    command.args(args).env("POOL_LOG", "error").stdin(Stdio::inherit());
    command.output().map_err(|error| not_run(&command, error))
}

fn printed(output: &Output) -> Result<String, Error> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let code = output.status.code().and_then(exit::error_code).unwrap_or(ErrorCode::Failed);
    Err(Refusal::new(code, complaint(&String::from_utf8_lossy(&output.stderr), output.status)).into())
}

/// The message of a log, without the time, the level and the target at the start of its first line.
pub(crate) fn complaint(log: &str, status: ExitStatus) -> String {
    let text =
        log.split_once(" ERROR ").and_then(|(_, rest)| rest.split_once(": ")).map_or(log, |(_, text)| text);
    let text = text.strip_prefix("poold: ").unwrap_or(text).trim();
    if text.is_empty() { format!("poold ended without a message: {status}") } else { text.to_owned() }
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
