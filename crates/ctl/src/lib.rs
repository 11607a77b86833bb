//! `poolctl`: the client for people and scripts. A command line comes in, requests go to `poold` over its
//! socket, and the responses are printed. Nothing is decided here, and no file of the pool is written, except
//! the lock, the record and the logs of the supervisor that `poolctl up` runs, and the reports of hooks that
//! `poold` did not answer.
//!
//! The modules, from the command line down; each imports only from those after it:
//!
//! - `cli`: the table of verbs and its dispatch; `verb`: a file per verb;
//! - `manual`: the pages of `poolctl help TOPIC`, and the man pages;
//! - what several verbs share: `create`, `describe` with `error_lines`, `ready`, `message_wait`, `missing_component`,
//!   `session_log`, `journal`, `pinning`, `outcome`, `body`, `lifecycle_args`, `exec`;
//! - `up`: the supervisor of the daemons;
//! - `targets`, `calls`, `follow`, `tail`: requests for several targets, common requests, streams, logs;
//! - `client`: requests that survive a restart of `poold`; why none was answered: `timeout`, `daemon_absence`;
//!   `supervisor_lock`;
//! - `context`, `exit`, `args`, `show`, `error`: flags and environment, exit codes, output;
//! - `atomic_file`, `poll`, `signals`, `threads`: helpers without knowledge of the pool.

mod args;
mod atomic_file;
mod body;
mod calls;
mod cli;
mod client;
mod context;
mod create;
mod daemon_absence;
mod describe;
mod error;
mod error_lines;
mod exec;
mod exit;
mod follow;
mod journal;
mod lifecycle_args;
mod manual;
mod message_wait;
mod missing_component;
mod outcome;
mod pinning;
mod poll;
mod ready;
mod session_log;
mod show;
mod signals;
mod supervisor_lock;
mod tail;
mod targets;
#[cfg(test)]
mod testing;
mod threads;
mod timeout;
mod up;
mod verb;

use std::ffi::OsString;
use std::process::ExitCode;

pub use error::Error;

use protocol::SessionView;

use cli::Cli;
use show::json::SessionJson;

// The items that most verbs import.
pub(crate) use args::Repeat;
pub(crate) use calls::{expect_done, expect_message, expect_session};
pub(crate) use client::Client;
pub(crate) use context::Context;

/// The document that `show --json` prints of a session, except for what is read from its log.
pub fn session_document(view: &SessionView) -> serde_json::Value {
    serde_json::json!(SessionJson::new(view, show::time::now()).in_full(view, (None, None)))
}

/// True for an agent's call of its hook, which ends with 0 even after a panic.
pub fn is_hook(args: &[OsString]) -> bool {
    verb::hook::is_agent_call(args)
}

/// Runs one command line, the program's name included, and returns the code to exit with.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    if let Some(code) = verb::hook::run_agent_call(&args) {
        return ExitCode::from(code);
    }
    if let Some(code) = verb::completions::answer(&args, cli::whole) {
        return ExitCode::from(code);
    }
    match cli::parse(&args) {
        Ok(cli) => ExitCode::from(run_verb(cli)),
        Err(error) => ExitCode::from(cli::refuse(&error, &args)),
    }
}

fn run_verb(cli: Cli) -> u8 {
    let (json, ends_as_session) = (cli.global.json, cli::ends_as_session(&cli.command));
    let done = Context::new(&cli.global).and_then(|context| cli::run(&context, cli.command));
    done.unwrap_or_else(|error| {
        let exit = exit::code(&error, ends_as_session);
        exit::report(&error, json, exit);
        exit
    })
}
