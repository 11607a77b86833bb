//! `import`: reads an exported database into an empty pool.

use std::ffi::OsStr;
use std::path::PathBuf;

use serde_json::json;

use crate::show::out;
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
        return Err(Error::refused("poold runs: stop it first with `poolctl down`"));
    }
    let text = programs::run_poold(context, &[OsStr::new("--import"), args.file.as_os_str()])?;
    out::json(&json!({"said": text}))
}
