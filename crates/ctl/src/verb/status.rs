//! `status`: the components and their health; exit 0 only when healthy.

use protocol::reply::Status;
use protocol::{Request, Response};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{out, status, time};

/// What a pool that is not healthy ends with: as a command that failed.
const NOT_HEALTHY: u8 = 1;

/// Show the pool's health; exit 0 only when healthy
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Prints it.
pub(crate) fn run(context: &Context, _: &Args) -> Result<u8, Error> {
    let found = status(&mut context.client())?;
    if context.style.json {
        out::json(&status::document(&found))?;
    } else {
        context.say(status::overview(&found, context.style, time::now()).trim_end())?;
    }
    Ok(if status::is_healthy(&found) { exit::OK } else { NOT_HEALTHY })
}

/// Asks for it.
pub(crate) fn status(client: &mut Client) -> Result<Status, Error> {
    match client.ask(Request::Status)? {
        Response::Status(status) => Ok(*status),
        other => Err(Error::unexpected(&other)),
    }
}
