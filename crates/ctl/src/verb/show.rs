//! `show`: everything about one session.

use protocol::Request;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::json::SessionJson;
use crate::show::{human, out, time};
use crate::verb::expect_session;

/// Show everything about a session
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
}

/// Prints it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let view = expect_session(context.client().ask(Request::Show(session))?)?;
    let now = time::now();
    if context.style.json {
        out::json(&SessionJson::new(&view, now).with_processes(&view))?;
    } else {
        out::text(&human::session(&view, context.style, now))?;
    }
    Ok(exit::OK)
}
