//! `import`: an exported database, back into an empty pool.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::programs;

/// Read what `export` wrote into the database of a pool that is down
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, or - for standard input
    pub file: PathBuf,
}

/// Has it done by `poold`, which alone writes the database.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if context.client().anybody_there() {
        return Err(Error::refused("poold runs: stop it first with `poolctl down`"));
    }
    let said = programs::have_poold(context, &[OsStr::new("--import"), args.file.as_os_str()])?;
    out::json(&json!({"said": said}))?;
    Ok(exit::OK)
}
