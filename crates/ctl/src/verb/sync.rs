//! `sync`: takes a full snapshot of tmux now, and applies it.

use protocol::reply::Synced;
use protocol::{Request, counted};
use serde_json::json;

use crate::calls::expected;
use crate::show::out;
use crate::{Context, Error};

/// Take a full snapshot of tmux now and apply it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Returns once it is applied.
pub(crate) fn run(context: &Context, Args {}: Args) -> Result<(), Error> {
    let _progress = context.progress("a snapshot of tmux");
    print(context, &expected!(context.client().ask(Request::Sync)?, Synced)?)
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
    context.say(&format!(
        "{by} saw {}, {} ({foreign} not of this pool); {changed}",
        counted(*sessions, "session"),
        counted(*panes, "pane")
    ))
}
