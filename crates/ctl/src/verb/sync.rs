//! `sync`: a full snapshot of tmux now, applied before it returns.

use protocol::reply::Synced;
use protocol::{Request, Response};
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;

/// Take a full snapshot of tmux now and apply it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Asks for it.
pub(crate) fn run(context: &Context, _: &Args) -> Result<u8, Error> {
    let _progress = context.progress("a snapshot of tmux");
    match context.client().ask(Request::Sync)? {
        Response::Synced(synced) => print(context, &synced)?,
        other => return Err(Error::unexpected(&other)),
    }
    Ok(exit::OK)
}

fn print(context: &Context, synced: &Synced) -> Result<(), Error> {
    let Synced { by, sessions, panes, foreign, changed } = synced;
    if context.style.json {
        return out::json(
            &json!({"by": by, "sessions": sessions, "panes": panes, "foreign": foreign, "changed": changed}),
        );
    }
    let changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
    let changed = if changed.is_empty() {
        "nothing changed".to_owned()
    } else {
        format!("changed: {}", changed.join(" "))
    };
    context
        .say(&format!("{by} saw {sessions} sessions, {panes} panes ({foreign} not of this pool); {changed}"))
}
