//! `import`: an exported database, back into an empty pool.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::context::Context;
use crate::error::Error;
use crate::up::programs;

/// Read what `export` wrote into the database of a pool that is down
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, or - for standard input
    pub file: PathBuf,
}

/// Becomes `poold`, which alone writes the database; does not return where that works.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if context.client().anybody_there() {
        return Err(Error::refused("poold runs: stop it first with `poolctl down`"));
    }
    Err(programs::become_poold(&context.paths, &[OsStr::new("--import"), args.file.as_os_str()]))
}
