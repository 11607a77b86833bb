//! `kill`: end a session's incarnation, verified.

use std::time::Duration;

use protocol::Request;
use protocol::request::Kill;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{human, time};
use crate::verb::{expect_session, for_all, only_one, print_session};

/// End what a session runs, and prove it gone
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required = true, value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Time between TERM and KILL [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub grace: Option<Duration>,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Kills them together: a grace is waited out once for all.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    only_one(&args.repeat, args.sessions.len())?;
    let what = if let [one] = args.sessions.as_slice() { one } else { "the sessions" };
    let progress = context.progress(&format!("{what} to end"));
    let mut progress = Some(progress);
    let ask = |session: &String| {
        let kill = Kill { session: context.session(session)?, grace_ms: args.grace.map(time::millis) };
        let mut client = context.client_within(args.grace.unwrap_or_default());
        expect_session(client.change(&args.repeat, Request::Kill(kill))?)
    };
    for_all(context, &args.sessions, ask, |view| {
        drop(progress.take());
        print_session(context, &view, &human::state_line(&view))
    })?;
    Ok(exit::OK)
}
