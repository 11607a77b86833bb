//! `worker`: the workers that the pool starts by itself when messages for them come.

mod add;
mod list;

use std::time::Duration;

use protocol::request::{Kill, Remove, Restore};
use protocol::{Request, SessionRef};
use serde_json::json;

use crate::calls::{self};
use crate::show::{out, time};
use crate::targets::for_each;
use crate::{Context, Error, Repeat, expect_session};

/// The workers that the pool starts by itself
#[derive(Debug, clap::Subcommand)]
pub(crate) enum WorkerCommand {
    /// List the workers: their state, what they work, how often their hosts were started
    Ls,
    /// Start workers now, also those that were stopped or failed too often
    Start {
        /// The workers
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Stop workers and leave them stopped: their messages wait
    ///
    /// A message that a handler had in work waits like the others, as if it had not been tried.
    Stop {
        /// The workers
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Time between TERM and KILL [default: from the configuration]
        #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
        grace: Option<Duration>,
    },
    /// Print what the handlers of a worker wrote, and what became of each message
    Logs {
        /// The worker
        name: String,
        /// Continue until its host ends
        #[arg(short, long)]
        follow: bool,
        /// Only the last N lines
        #[arg(short = 'n', long, value_name = "N")]
        lines: Option<u64>,
    },
    Add(Box<add::Args>),
    /// Remove workers that were added; those of the configuration are removed there
    Rm {
        /// The workers
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// Even with messages in its own queue
        #[arg(long)]
        force: bool,
    },
}

/// Prints the log of a session: followed or not, and at most so many lines.
type PrintLog = fn(&Context, String, (bool, Option<u64>)) -> Result<(), Error>;

pub(crate) fn run(context: &Context, command: WorkerCommand, print_log: PrintLog) -> Result<(), Error> {
    match command {
        WorkerCommand::Ls => list::list(context),
        WorkerCommand::Start { names } => for_each(context, &names, |name| start(context, name)),
        WorkerCommand::Stop { names, grace } => for_each(context, &names, |name| stop(context, name, grace)),
        WorkerCommand::Logs { name, follow, lines } => {
            print_log(context, reference(&name).0, (follow, lines))
        }
        WorkerCommand::Add(args) => add::add(context, *args),
        WorkerCommand::Rm { names, force } => for_each(context, &names, |name| remove(context, name, force)),
    }
}

/// The session of a worker's host, as any verb takes it.
fn reference(name: &str) -> SessionRef {
    SessionRef(format!("@{}", name.strip_prefix('@').unwrap_or(name)))
}

fn start(context: &Context, name: &str) -> Result<(), Error> {
    let _progress = context.progress(&format!("worker {name} to run"));
    let restore = Restore { session: Some(reference(name)), wait_slot_ms: None };
    let reply = context.client().change(&Repeat::default(), Request::Restore(restore))?;
    list::print(context, &expect_session(reply)?)
}

fn stop(context: &Context, name: &str, grace: Option<Duration>) -> Result<(), Error> {
    let _progress = context.progress(&format!("worker {name} to end"));
    let kill = Kill { session: reference(name), grace_ms: grace.map(time::millis) };
    let mut client = context.client_within(grace);
    list::print(context, &expect_session(client.change(&Repeat::default(), Request::Kill(kill))?)?)
}

fn remove(context: &Context, name: &str, force: bool) -> Result<(), Error> {
    let mut client = context.client();
    let worker = calls::session(&mut client, reference(name))?.session.worker;
    if worker.is_some_and(|worker| worker.configured && !worker.removed) {
        return Err(Error::refused(format!(
            "worker {name} is in the configuration: remove [workers.{name}] there, then `poolctl config reload`"
        )));
    }
    let session = reference(name);
    let remove = Remove { session, keep_tmux: false, force, purge: true, archive: false, only_ended: false };
    calls::expect_removed(&client.change(&Repeat::default(), Request::Remove(remove))?)?;
    if context.style.json {
        return out::json(&json!({"worker": name, "removed": true}));
    }
    context.say(&format!("{name}  removed"))
}
