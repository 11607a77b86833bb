//! `backup`: a consistent copy of the database, written while it is in use.

use std::fs;
use std::path::PathBuf;

use protocol::OsBytes;
use serde_json::json;

use crate::calls::{self, expected};
use crate::context::absolute;
use crate::show::{escape, out};
use crate::{Context, Error};

/// Write a consistent copy of the database while the pool runs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, which must not exist yet
    file: PathBuf,
}

/// Returns once `poold` has written it.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let path = absolute(&args.file)?;
    let mut client = context.unlimited_client();
    let progress = context.progress("the copy");
    let written = expected!(calls::backup(&mut client, OsBytes::from(path.as_os_str()))?, Text)?;
    drop(progress);
    if context.style.json {
        let bytes = fs::metadata(&path).ok().map(|found| found.len());
        out::json(&json!({"path": OsBytes::from(path), "bytes": bytes, "written": written}))
    } else {
        context.say(&escape::line(written.trim_end()))
    }
}
