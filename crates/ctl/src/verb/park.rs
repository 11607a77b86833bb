//! `park`: ends what sessions run, to free their slots; a prompt wakes them.

use std::time::Duration;

use protocol::Request;
use protocol::request::Park;

use crate::show::time;
use crate::targets::{Scope, Target, Targets, for_all, print_state};
use crate::{Context, Error, Repeat, expect_session};

/// Park sessions, which frees their slots; a prompt, attach or restore wakes them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
    /// Even with work in flight or a client attached
    #[arg(long)]
    force: bool,
    /// Time between TERM and KILL [default: from the configuration]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    grace: Option<Duration>,
    #[command(flatten)]
    repeat: Repeat,
}

/// Parks them at the same time.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let targets = args.targets.find(context, &args.repeat, (Scope::Running, "to park"))?;
    let ask = |target: &Target| {
        let grace_ms = args.grace.map(time::millis);
        let park = Park { session: target.session.clone(), force: args.force, grace_ms };
        let mut client = context.client_within(args.grace);
        expect_session(client.change(&args.repeat, Request::Park(park))?)
    };
    for_all(context, (&targets, "to be parked"), ask, |_, view| print_state(context, &view))
}
