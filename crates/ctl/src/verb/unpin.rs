//! `unpin`: makes sessions subject to automatic parking again.

use crate::context::Context;
use crate::error::Error;
use crate::pinning::{self, PinArgs};

/// Let sessions be parked automatically again
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pin: PinArgs,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    pinning::set(context, &args.pin, false)
}
