//! `status`: the components and their health; exit 0 only when healthy.

use std::path::Path;
use std::time::Duration;

use protocol::reply::Status;
use protocol::{ErrorCode, Refusal, Request, Response};

use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{out, status, time};
use crate::up::builds;
use crate::verb::show;

/// How long a daemon that recovers its database has to answer nevertheless.
const RECOVERING: Duration = Duration::from_secs(1);
/// What a pool that is not healthy ends with: as a command that failed.
const NOT_HEALTHY: u8 = 1;

/// Show the pool's health; exit 0 only when healthy
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Of one session, as `show` does
    pub session: Option<String>,
}

/// Prints it.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if let Some(session) = &args.session {
        return show::run(context, &show::Args { session: session.clone() });
    }
    let found = look(context)?;
    let old = builds::outdated(context, Some(&found));
    if context.style.json {
        let mut document = status::document(&found);
        document["outdated"] = serde_json::json!(old);
        out::json(&document)?;
    } else {
        context.say(status::overview(&found, context.style, time::now()).trim_end())?;
        if !old.is_empty() {
            let which = old.join(", ");
            context.say(&format!("older build: {which}; `poolctl up` restarts them, sessions live on"))?;
        }
    }
    Ok(if status::is_healthy(&found) { exit::OK } else { NOT_HEALTHY })
}

/// The status; of a daemon that does not answer yet, how far it is.
fn look(context: &Context) -> Result<Status, Error> {
    let Some((pid, percent)) = recovery(&context.paths.run) else {
        return status(&mut context.client());
    };
    match context.client().ask_once(Request::Status, RECOVERING) {
        Ok(Response::Status(status)) => Ok(*status),
        Ok(other) => Err(Error::unexpected(&other)),
        Err(error) if matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Timeout) => {
            let recovering = format!("poold (pid {pid}) is recovering its database: {percent} %");
            Err(Refusal::new(ErrorCode::Unavailable, recovering).into())
        }
        Err(error) => Err(error),
    }
}

/// The daemon that recovers its database, and how much of it is done.
fn recovery(run: &Path) -> Option<(u32, u8)> {
    let text = std::fs::read_to_string(run.join("recovery")).ok()?;
    let (pid, percent) = text.trim().split_once(' ')?;
    let (pid, percent) = (pid.parse().ok()?, percent.parse().ok()?);
    process::identity::identify(pid).ok()??;
    Some((pid, percent))
}

/// Asks for it.
pub(crate) fn status(client: &mut Client) -> Result<Status, Error> {
    match client.ask(Request::Status)? {
        Response::Status(status) => Ok(*status),
        other => Err(Error::unexpected(&other)),
    }
}
