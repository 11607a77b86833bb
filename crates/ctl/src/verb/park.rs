//! `park`: end what sessions run to free their slots; a prompt wakes them.

use std::time::Duration;

use protocol::Request;
use protocol::request::Park;

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{human, time};
use crate::verb::{expect_session, for_each, only_one, print_session};

/// Put sessions aside to free their slots; a prompt, attach or restore wakes them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Even with work in flight or a client attached
    #[arg(long)]
    pub force: bool,
    /// Time between TERM and KILL [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub grace: Option<Duration>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Parks them one after the other.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client_within(args.grace.unwrap_or_default());
    for_each(context, &args.sessions, |session| park(context, &mut client, args, session))?;
    Ok(exit::OK)
}

fn park(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let progress = context.progress(&format!("{session} to be parked"));
    let park = Park { session, force: args.force, grace_ms: args.grace.map(time::millis) };
    let view = expect_session(client.change(&args.repeat, Request::Park(park))?)?;
    drop(progress);
    print_session(context, &view, &human::state_line(&view))
}
