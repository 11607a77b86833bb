//! `prune`: removes sessions that have ended, and directories that belong to none.

use std::time::Duration;

use protocol::reply::Pruned;
use protocol::request::Prune;
use protocol::{OsBytes, Request};
use serde_json::{Value, json};

use crate::calls::expected;
use crate::show::{escape, hint, out, size, time};
use crate::{Context, Error, Repeat};

/// Remove sessions that are stopped or failed, and directories that belong to none; never asks
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only what ended at least this long ago
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration, default_value = "0", hide_default_value = true)]
    older: Duration,
    /// First write what each leaves to an archive, and verify that
    #[arg(long)]
    archive: bool,
    /// The work directories too
    #[arg(long)]
    purge: bool,
    /// Only print what would be removed
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Prunes, and prints what was removed.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let Args { archive, purge, dry_run, .. } = args;
    let prune = Prune { older_ms: time::millis(args.older), archive, purge, dry_run };
    let progress = context.progress("the sessions that have ended to be removed");
    // The time that it takes depends on the number of files.
    let pruned = expected!(context.unlimited_client().change(&args.repeat, Request::Prune(prune))?, Pruned)?;
    drop(progress);
    if context.style.json {
        out::json(&document(&pruned, dry_run))?;
    } else if !context.style.quiet {
        out::text(&hint::message(&text(&pruned, dry_run)))?;
    }
    match pruned.failed.as_slice() {
        [] => Ok(()),
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
        "kept": pruned.kept.iter().map(|(id, name, messages)| json!({"id": id, "name": name, "messages": messages})).collect::<Vec<_>>(),
        "dry_run": dry_run,
    })
}

fn text(pruned: &Pruned, dry_run: bool) -> String {
    let removed = if dry_run { "would be removed" } else { "removed" };
    let sessions = pruned.sessions.iter().map(|(id, name)| format!("{id}  {name}  {removed}\n"));
    let directory = |dir: &OsBytes| format!("{}  {removed}\n", escape::line(&dir.to_string_lossy()));
    let directories = pruned.directories.iter().map(directory);
    let left = |(id, name, messages): &(protocol::SessionId, protocol::Name, u64)| {
        let wait =
            if *messages == 1 { "1 message waits".to_owned() } else { format!("{messages} messages wait") };
        format!("{id}  {name}  left: {wait} there; `poolctl rm --force {name}` removes it all the same\n")
    };
    let left = pruned.kept.iter().map(left);
    let lines: String = sessions.chain(directories).chain(left).collect();
    // The freed size is known after the removal only.
    if dry_run { lines } else { format!("{lines}{} freed\n", size::short(pruned.bytes)) }
}
