//! `park`: ends what sessions run, to free their slots; a prompt wakes them.

use std::time::Duration;

use protocol::Request;
use protocol::request::Park;

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::{session, time};
use crate::targets::{for_each, only_one, print_session};

/// Park sessions, which frees their slots; a prompt, attach or restore wakes them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    /// Even with work in flight or a client attached
    #[arg(long)]
    force: bool,
    /// Time between TERM and KILL [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    grace: Option<Duration>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Parks them one after the other.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client_within(args.grace.unwrap_or_default());
    for_each(context, &args.sessions, |session| park(context, &mut client, &args, session))
}

fn park(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let progress = context.progress(&format!("{session} to be parked"));
    let park = Park { session, force: args.force, grace_ms: args.grace.map(time::millis) };
    let view = expect_session(client.change(&args.repeat, Request::Park(park))?)?;
    drop(progress);
    print_session(context, &view, &session::state_line(&view))
}
