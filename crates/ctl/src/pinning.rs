//! Pinning, which `pin` and `unpin` share: a pinned session is never parked automatically.

use protocol::Request;
use protocol::request::Pin;

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::context::Context;
use crate::error::Error;
use crate::targets::{for_each, only_one, print_session};

/// The arguments of both verbs.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Pins the sessions, or unpins them.
pub(crate) fn set(context: &Context, args: &PinArgs, pinned: bool) -> Result<(), Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client();
    for_each(context, &args.sessions, |session| {
        let pin = Pin { session: context.session(session)?, pinned };
        let view = expect_session(client.change(&args.repeat, Request::Pin(pin))?)?;
        let word = if view.session.policy.pinned { "pinned" } else { "not pinned" };
        print_session(context, &view, &format!("{}  {}  {word}", view.session.id, view.session.name))
    })
}
