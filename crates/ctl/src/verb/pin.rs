//! `pin` and `unpin`: whether sessions may be parked by themselves.

use protocol::Request;
use protocol::request::Pin;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::verb::{expect_session, for_each, only_one, print_session};

/// Never park sessions by themselves
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Let sessions be parked by themselves again
#[derive(Debug, clap::Args)]
pub(crate) struct UnpinArgs {
    #[command(flatten)]
    pub same: Args,
}

/// Pins them, or not any more.
pub(crate) fn run(context: &Context, args: &Args, pinned: bool) -> Result<u8, Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client();
    for_each(context, &args.sessions, |session| {
        let pin = Pin { session: context.session(session)?, pinned };
        let view = expect_session(client.change(&args.repeat, Request::Pin(pin))?)?;
        let word = if view.session.policy.pinned { "pinned" } else { "not pinned" };
        print_session(context, &view, &format!("{}  {}  {word}", view.session.id, view.session.name))
    })?;
    Ok(exit::OK)
}
