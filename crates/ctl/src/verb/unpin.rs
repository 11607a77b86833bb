//! `unpin`: makes sessions subject to automatic parking again.

use crate::pinning::{self, PinArgs};
use crate::{Context, Error};

/// Let sessions be parked automatically again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pin: PinArgs,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    pinning::set(context, &args.pin, false)
}
