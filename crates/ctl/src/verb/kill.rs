//! `kill`: ends a session's incarnation, and verifies that.

use std::time::Duration;

use protocol::Request;
use protocol::request::Kill;

use crate::show::time;
use crate::targets::{Scope, Target, Targets, for_all, print_state};
use crate::{Context, Error, Repeat, expect_session};

/// End what a session runs, and prove it gone
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Time between TERM and KILL [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    grace: Option<Duration>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Kills them at the same time, so that their graces run concurrently.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::NotOver, "to end"))?;
    let ask = |target: &Target| {
        let kill = Kill { session: target.session.clone(), grace_ms: args.grace.map(time::millis) };
        let mut client = context.client_within(args.grace);
        expect_session(client.change(&args.repeat, Request::Kill(kill))?)
    };
    for_all(context, (&targets, "to end"), ask, |_, view| print_state(context, &view))
}
