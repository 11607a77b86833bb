//! `rename`: give a session another name.

use protocol::Request;
use protocol::request::Rename;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::human;
use crate::verb::{expect_session, print_session};

/// Give a session another name
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
    /// Its new name
    pub name: String,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Renames it.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let rename = Rename { session: context.session(&args.session)?, name: args.name };
    let view = expect_session(context.client().change(&args.repeat, Request::Rename(rename))?)?;
    print_session(context, &view, &human::state_line(&view))?;
    Ok(exit::OK)
}
