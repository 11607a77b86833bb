//! `dismiss`: takes what sessions ask off the list of what waits for a person.

use protocol::Request;

use crate::args::Repeat;
use crate::calls::expect_session;
use crate::context::Context;
use crate::error::Error;
use crate::targets::{for_each, only_one, print_session};

/// Take what sessions ask off the inbox, without an answer
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions
    #[arg(required = true, value_name = "SESSION")]
    sessions: Vec<String>,
    #[command(flatten)]
    repeat: Repeat,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let mut client = context.client();
    for_each(context, &args.sessions, |session| {
        let dismiss = Request::Dismiss(context.session(session)?);
        let view = expect_session(client.change(&args.repeat, dismiss)?)?;
        print_session(context, &view, &format!("{}  {}  dismissed", view.session.id, view.session.name))
    })
}
