//! `prune`: remove what is over, and directories that belong to nobody.

use std::time::Duration;

use protocol::reply::Pruned;
use protocol::request::Prune;
use protocol::{OsBytes, Request, Response};
use serde_json::{Value, json};

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out, size, time};

/// Remove sessions that are stopped or failed, and directories that belong to none; never asks
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what has been over for so long
    #[arg(long, value_name = "DUR", value_parser = time::parse, default_value = "0", hide_default_value = true)]
    pub older: Duration,
    /// First write what each leaves to an archive, and read that again
    #[arg(long)]
    pub archive: bool,
    /// The work directories too
    #[arg(long)]
    pub purge: bool,
    /// Only say what would be removed
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Prunes, and says what went.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let Args { archive, purge, dry_run, .. } = *args;
    let prune = Prune { older_ms: time::millis(args.older), archive, purge, dry_run };
    let progress = context.progress("what is over to be removed");
    // How long it takes depends on how much there is.
    let answer = context.patient_client().change(&args.repeat, Request::Prune(prune))?;
    drop(progress);
    let pruned = match answer {
        Response::Pruned(pruned) => pruned,
        other => return Err(Error::unexpected(&other)),
    };
    if context.style.json {
        out::json(&document(&pruned, dry_run))?;
    } else if !context.style.quiet {
        out::text(&text(&pruned, dry_run))?;
    }
    match pruned.failed.as_slice() {
        [] => Ok(exit::OK),
        failed => Err(Error::failed(format!("not removed:\n{}", failed.join("\n")))),
    }
}

fn document(pruned: &Pruned, dry_run: bool) -> Value {
    let session = |(id, name): &(protocol::SessionId, protocol::Name)| json!({"id": id, "name": name});
    json!({
        "sessions": pruned.sessions.iter().map(session).collect::<Vec<_>>(),
        "directories": pruned.directories,
        "bytes": (!dry_run).then_some(pruned.bytes),
        "failed": pruned.failed,
        "dry_run": dry_run,
    })
}

fn text(pruned: &Pruned, dry_run: bool) -> String {
    let removed = if dry_run { "would be removed" } else { "removed" };
    let sessions = pruned.sessions.iter().map(|(id, name)| format!("{id}  {name}  {removed}\n"));
    let directory = |dir: &OsBytes| format!("{}  {removed}\n", escape::line(&dir.to_string_lossy()));
    let directories = pruned.directories.iter().map(directory);
    let lines: String = sessions.chain(directories).collect();
    // How much comes free is known when it is gone.
    if dry_run { lines } else { format!("{lines}{} came free\n", size::short(pruned.bytes)) }
}
