//! `config`: prints, checks and reloads the configuration.

use std::ffi::OsStr;

use protocol::{ErrorCode, Request, redact};
use serde_json::json;

use crate::calls::expected;
use crate::show::out;
use crate::up::programs;
use crate::{Context, Error, exit};

/// Show, check and reload the configuration
#[derive(Debug, clap::Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the effective configuration, with defaults and without keys and passwords
    Show,
    /// Print the path of the configuration file
    Path,
    /// Check the configuration file
    Check,
    /// Make the running poold read it again
    Reload,
}

/// Runs one of its commands.
pub(crate) fn run(context: &Context, command: ConfigCommand) -> Result<u8, Error> {
    match command {
        ConfigCommand::Show => return show(context),
        ConfigCommand::Check => {
            let document = |said: &str| json!({"checked": said});
            programs::run_poold(context, &[OsStr::new("--check-config")], document)?;
        }
        ConfigCommand::Path => print(context, "path", &context.paths.config.display().to_string())?,
        ConfigCommand::Reload => {
            let changed = expected!(context.client().ask(Request::ConfigReload)?, Text)?;
            print(context, "changed", &changed)?;
        }
    }
    Ok(exit::OK)
}

/// Prints the daemon's configuration, or without a daemon the one that it would have.
fn show(context: &Context) -> Result<u8, Error> {
    let config = match context.client().ask(Request::Config) {
        Ok(response) => expected!(response, Text)?,
        Err(error) if error.code() == ErrorCode::Unavailable => {
            programs::poold_output(context, &[OsStr::new("--print-config")])?
        }
        Err(error) => return Err(error),
    };
    print(context, "config", &redacted(&config))?;
    Ok(exit::OK)
}

/// Removes keys and passwords. `pass` under `[env]` lists names of variables, and is no password.
fn redacted(config: &str) -> String {
    let shown = |line: &str| if line.starts_with("pass = [") { line.to_owned() } else { redact::text(line) };
    config.lines().map(shown).collect::<Vec<_>>().join("\n")
}

fn print(context: &Context, key: &str, text: &str) -> Result<(), Error> {
    if context.style.json { out::json(&json!({key: text.trim_end()})) } else { out::line(text.trim_end()) }
}
