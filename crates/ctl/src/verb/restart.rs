//! `restart`: ends the incarnations of sessions, if they run, and starts others.

use std::time::Duration;

use protocol::Request;
use protocol::request::Restart;

use crate::ready::{self, Blocking};
use crate::show::time;
use crate::targets::{Scope, Target, Targets, for_all, print_state};
use crate::{Context, Error, Repeat, expect_session};

/// End what sessions run, if anything, and start them again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Time between TERM and KILL [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    grace: Option<Duration>,
    /// Begin a new conversation instead of resuming the last one
    #[arg(long)]
    fresh: bool,
    /// Time to wait for a slot; 0: not at all [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    wait_slot: Option<Duration>,
    #[command(flatten)]
    blocking: Blocking,
    #[command(flatten)]
    repeat: Repeat,
}

/// Restarts them at the same time, and returns once they run again.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to restart"))?;
    let quiet = context.without_progress();
    let ask = |target: &Target| {
        let restart = Restart {
            session: target.session.clone(),
            grace_ms: args.grace.map(time::millis),
            fresh: args.fresh,
            clear: false,
            wait_slot_ms: args.wait_slot.map(time::millis),
        };
        let mut client = context.client_for_slot(args.wait_slot, args.grace);
        let view = expect_session(client.change(&args.repeat, Request::Restart(restart))?)?;
        ready::wait(&quiet, args.blocking, view, None)
    };
    for_all(context, (&targets, "to run again"), ask, |_, view| print_state(context, &view))
}
