//! `rm`: remove sessions' records.

use protocol::request::{List, Remove};
use protocol::{Lifecycle, Request};
use serde_json::json;

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::verb::{expect_done, for_each, ls, only_one};

/// Remove sessions; what they run is ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required_unless_present = "all", value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Forget it and let tmux keep it
    #[arg(long)]
    pub keep_tmux: bool,
    /// Even with work in flight or a client attached
    #[arg(long)]
    pub force: bool,
    /// Its directory too, work included
    #[arg(long)]
    pub purge: bool,
    /// All that are stopped
    #[arg(long, requires = "stopped", conflicts_with_all = ["sessions", "op_id"])]
    pub all: bool,
    /// With --all
    #[arg(long, requires = "all")]
    pub stopped: bool,
    #[command(flatten)]
    pub repeat: Repeat,
}

/// Removes them one after the other.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let mut client = context.client();
    let sessions = if args.all { stopped(&mut client)? } else { args.sessions.clone() };
    only_one(&args.repeat, if args.all { 1 } else { sessions.len() })?;
    for_each(context, &sessions, |session| remove(context, &mut client, args, session))?;
    Ok(exit::OK)
}

fn stopped(client: &mut Client) -> Result<Vec<String>, Error> {
    let list = List { all: true, ..List::default() };
    let over = |state| matches!(state, Lifecycle::Stopped | Lifecycle::Failed);
    let views = ls::sessions(client, list)?.into_iter().filter(|view| over(view.session.lifecycle));
    Ok(views.map(|view| view.session.id.to_string()).collect())
}

fn remove(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let Args { keep_tmux, force, purge, .. } = *args;
    let remove = Remove { session: session.clone(), keep_tmux, force, purge };
    let progress = context.progress(&format!("{session} to be gone"));
    expect_done(&client.change(&args.repeat, Request::Remove(remove))?)?;
    drop(progress);
    if context.style.json {
        let mode = if keep_tmux { "detach" } else { "kill_tmux" };
        return out::json(&json!({"session": session, "removed": true, "mode": mode}));
    }
    context.say(&format!("{session}  removed"))
}
