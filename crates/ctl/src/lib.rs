//! `poolctl`: the client for people and scripts. A command line comes in, requests go to `poold`
//! over its socket, and what it answers is shown; nothing is decided here and no file of the pool
//! is written, but for the lock and the logs of the supervisor that `poolctl up` is, and the reports
//! of hooks that `poold` did not answer.

mod cli;
mod client;
mod context;
mod error;
mod exit;
mod follow;
mod show;
mod tail;
#[cfg(test)]
mod testing;
mod up;
mod verb;

use std::ffi::OsString;
use std::process::ExitCode;

pub use error::Error;

use cli::Cli;
use context::Context;

/// Whether a command line is an agent's call of its hook, which ends with 0 whatever happens.
#[must_use]
pub fn is_hook(args: &[OsString]) -> bool {
    verb::hook::is_called(args)
}

/// Carries out one command line, the program's name included, and returns the code to exit with.
#[must_use]
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = verb::hook::at_once(&args) {
        return ExitCode::from(code);
    }
    match cli::parse(&args) {
        Ok(cli) => ExitCode::from(carry_out(cli)),
        Err(error) => ExitCode::from(cli::refuse(&error, &args)),
    }
}

fn carry_out(cli: Cli) -> u8 {
    let (json, passes_on) = (cli.global.json, verb::passes_exit_code_on(&cli.command));
    let done = Context::new(&cli.global).and_then(|context| verb::run(&context, cli.command));
    done.unwrap_or_else(|error| {
        let exit = exit::code(&error, passes_on);
        exit::report(&error, json, exit);
        exit
    })
}
