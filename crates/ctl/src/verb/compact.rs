//! `compact`: returns unused space of the database to the file system.

use std::ffi::OsStr;

use protocol::{Request, Response};
use serde_json::json;

use crate::show::out;
use crate::up::programs;
use crate::{Context, Error};

/// Return unused space of the database to the file system; poold answers nothing else meanwhile
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without poold, which must not run
    #[arg(long)]
    offline: bool,
}

/// Returns once it is done.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.offline {
        let document = |said: &str| json!({"before_bytes": null, "after_bytes": null, "said": said});
        return programs::run_poold(context, &[OsStr::new("--compact")], document);
    }
    let _progress = context.progress("the database to be compacted");
    match context.unlimited_client().ask(Request::Compact)? {
        Response::Compacted { before, after } if context.style.json => {
            out::json(&json!({"before_bytes": before, "after_bytes": after}))?;
        }
        Response::Compacted { before, after } => {
            context.say(&format!("{before} bytes before, {after} bytes now"))?;
        }
        other => return Err(Error::unexpected(&other)),
    }
    Ok(())
}
