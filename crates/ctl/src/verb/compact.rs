//! `compact`: gives unused space of the database back.

use std::ffi::OsStr;

use protocol::{Request, Response};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::programs;

/// Give unused space of the database back; nothing else is answered meanwhile
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Without poold, which must not run
    #[arg(long)]
    pub offline: bool,
}

/// Has it done.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if args.offline {
        let said = programs::have_poold(context, &[OsStr::new("--compact")])?;
        out::json(&json!({"said": said}))?;
        return Ok(exit::OK);
    }
    let _progress = context.progress("the database to be compacted");
    match context.patient_client().ask(Request::Compact)? {
        Response::Compacted { before, after } if context.style.json => {
            out::json(&json!({"before_bytes": before, "after_bytes": after}))?;
        }
        Response::Compacted { before, after } => {
            context.say(&format!("{before} bytes before, {after} bytes now"))?;
        }
        other => return Err(Error::unexpected(&other)),
    }
    Ok(exit::OK)
}
