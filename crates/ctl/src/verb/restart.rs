//! `restart`: end the incarnation, if one runs, and start another.

use std::time::Duration;

use protocol::Request;
use protocol::request::Restart;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{human, time};
use crate::verb::ready::{self, Block};
use crate::verb::{expect_session, print_session};

/// End what a session runs, if anything, and start it anew
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
    /// Time between TERM and KILL [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub grace: Option<Duration>,
    /// Begin a new conversation instead of taking up the last one
    #[arg(long)]
    pub fresh: bool,
    /// How long to wait for a slot; 0: not at all [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub wait_slot: Option<Duration>,
    #[command(flatten)]
    pub block: Block,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Restarts it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let restart = Restart {
        session: context.session(&args.session)?,
        grace_ms: args.grace.map(time::millis),
        fresh: args.fresh,
        wait_slot_ms: args.wait_slot.map(time::millis),
    };
    let progress = context.progress(&format!("{} to run again", args.session));
    let mut client = context.client_for_slot(args.wait_slot, args.grace.unwrap_or_default());
    let view = expect_session(client.change(&args.repeat, Request::Restart(restart))?)?;
    drop(progress);
    let view = ready::wait(context, args.block, view, None)?;
    print_session(context, &view, &human::state_line(&view))?;
    Ok(exit::OK)
}
