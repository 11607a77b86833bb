//! `pin`: exempts sessions from automatic parking.

use crate::pinning::{self, PinArgs};
use crate::{Context, Error};

/// Never park sessions automatically
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pin: PinArgs,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    pinning::set(context, &args.pin, true)
}
