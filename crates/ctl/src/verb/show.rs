//! `show`: everything about one session.

use crate::context::Context;
use crate::describe;
use crate::error::Error;

/// Show everything about a session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    describe::session(context, &args.session)
}
