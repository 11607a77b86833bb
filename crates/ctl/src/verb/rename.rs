//! `rename`: gives a session another name.

use protocol::Request;
use protocol::request::Rename;

use crate::targets::print_state;
use crate::{Context, Error, Repeat, expect_session};

/// Give a session another name
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Its new name
    name: String,
    #[command(flatten)]
    repeat: Repeat,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let rename = Rename { session: context.session(&args.session)?, name: args.name };
    let view = expect_session(context.client().change(&args.repeat, Request::Rename(rename))?)?;
    print_state(context, &view)
}
