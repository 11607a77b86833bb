//! `restart`: ends the incarnation, if one runs, and starts another.

use std::time::Duration;

use protocol::Request;
use protocol::request::Restart;

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::context::Context;
use crate::error::Error;
use crate::ready::{self, Blocking};
use crate::show::{session, time};
use crate::targets::print_session;

/// End what a session runs, if anything, and start it again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
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

/// Returns once it runs again.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let restart = Restart {
        session: context.session(&args.session)?,
        grace_ms: args.grace.map(time::millis),
        fresh: args.fresh,
        clear: false,
        wait_slot_ms: args.wait_slot.map(time::millis),
    };
    let progress = context.progress(&format!("{} to run again", args.session));
    let mut client = context.client_for_slot(args.wait_slot, args.grace.unwrap_or_default());
    let view = expect_session(client.change(&args.repeat, Request::Restart(restart))?)?;
    drop(progress);
    let view = ready::wait(context, args.blocking, view, None)?;
    print_session(context, &view, &session::state_line(&view))
}
