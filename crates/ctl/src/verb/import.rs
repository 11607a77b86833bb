//! `import`: reads an exported database into an empty pool.

use std::ffi::OsStr;
use std::path::PathBuf;

use protocol::Refusal;
use serde_json::json;

use crate::up::programs;
use crate::{Context, Error};

/// Read what `export` wrote into the database of a pool that is down
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, or - for standard input
    file: PathBuf,
}

/// Runs `poold --import`: only `poold` writes the database.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if context.client().is_listening() {
        return Err(Refusal::conflict("poold runs: stop it first with `poolctl down`").into());
    }
    let args = [OsStr::new("--import"), args.file.as_os_str()];
    programs::run_poold(context, &args, |said| json!({"said": said}))
}
