//! `config`: the configuration in force, where it is, whether it is right.

use std::process::{Command as Process, ExitStatus, Stdio};

use protocol::{ErrorCode, Request, redact};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::programs;
use crate::verb::expect_text;

/// The configuration
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Print the configuration in force, defaults included, keys and passwords left out
    Show,
    /// Print where the configuration file is
    Path,
    /// Check the configuration file
    Check,
    /// Make a running poold read it again
    Reload,
}

/// Carries it out.
pub(crate) fn run(context: &Context, command: &Command) -> Result<u8, Error> {
    match command {
        Command::Show => return show(context),
        Command::Check => return Ok(code(poold(context, "--check-config").status().map_err(not_run)?)),
        Command::Path => print(context, "path", &format!("{}\n", context.paths.config.display()))?,
        Command::Reload => {
            let changed = expect_text(context.client().ask(Request::ConfigReload)?)?;
            print(context, "changed", &changed)?;
        }
    }
    Ok(exit::OK)
}

/// The daemon's, or what a daemon would have.
fn show(context: &Context) -> Result<u8, Error> {
    let config = match context.client().ask(Request::Config) {
        Ok(response) => expect_text(response)?,
        Err(error) if error.code() == ErrorCode::Unavailable => {
            let output =
                poold(context, "--print-config").stderr(Stdio::inherit()).output().map_err(not_run)?;
            if !output.status.success() {
                return Ok(code(output.status));
            }
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Err(error) => return Err(error),
    };
    print(context, "config", &redacted(&config))?;
    Ok(exit::OK)
}

/// The configuration without keys and passwords. `pass` under `[env]` lists names of variables, and is no password.
fn redacted(config: &str) -> String {
    let shown = |line: &str| if line.starts_with("pass = [") { line.to_owned() } else { redact::text(line) };
    config.lines().map(shown).collect::<Vec<_>>().join("\n")
}

fn print(context: &Context, key: &str, text: &str) -> Result<(), Error> {
    if context.style.json { out::json(&json!({key: text.trim_end()})) } else { out::line(text.trim_end()) }
}

fn poold(context: &Context, flag: &str) -> Process {
    let mut command = Process::new(programs::find("poold"));
    programs::environment(&mut command, &context.paths);
    command.arg(flag);
    command
}

/// Refuses where `poold` could not start with the configuration file as it is: said now, and not after many tries.
///
/// # Errors
/// Usage, with what is wrong.
pub(crate) fn check_first(context: &Context) -> Result<(), Error> {
    let output = poold(context, "--check-config").stdin(Stdio::null()).output().map_err(not_run)?;
    if output.status.code() != Some(i32::from(ErrorCode::Usage.exit_code())) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::usage(programs::complaint(&said, output.status)))
}

fn not_run(error: std::io::Error) -> Error {
    Error::failed(format!("cannot run poold: {error}"))
}

fn code(status: ExitStatus) -> u8 {
    status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
