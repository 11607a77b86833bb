//! `backup`: a consistent copy of the database, made while it is in use.

use std::fs;
use std::path::PathBuf;

use protocol::{OsBytes, Request};
use serde_json::json;

use crate::client::Client;
use crate::context::{Context, absolute};
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out};
use crate::verb::expect_text;

/// Write a consistent copy of the database while the pool runs
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, which must not be there yet
    pub file: PathBuf,
}

/// Has it written.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let path = absolute(&args.file)?;
    let mut client: Client = context.patient_client();
    let progress = context.progress("the copy");
    let written = expect_text(client.ask(Request::Backup { path: OsBytes::from(path.as_os_str()) })?)?;
    drop(progress);
    if context.style.json {
        let bytes = fs::metadata(&path).ok().map(|found| found.len());
        out::json(&json!({"path": path.to_string_lossy(), "bytes": bytes, "written": written}))?;
    } else {
        context.say(&escape::line(written.trim_end()))?;
    }
    Ok(exit::OK)
}
