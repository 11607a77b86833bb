//! `rm`: removes sessions.

use protocol::request::{List, Remove};
use protocol::{Lifecycle, Request, Response};
use serde_json::json;

use crate::args::Repeat;
use crate::calls::{self, expect_done};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::{escape, out};
use crate::targets::{for_each, only_one};

/// Remove sessions; what they run is ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The sessions
    #[arg(required_unless_present_any = ["all", "stopped"], value_name = "SESSION")]
    sessions: Vec<String>,
    /// Remove them from the pool and leave them to tmux, running
    #[arg(long, conflicts_with_all = ["purge", "archive"])]
    keep_tmux: bool,
    /// Even with work in flight or a client attached
    #[arg(long)]
    force: bool,
    /// Their directories too, work included
    #[arg(long)]
    purge: bool,
    /// First write what each leaves to STATE_DIR/archive/ID-NAME-STAMP.tar.gz, and verify that
    #[arg(long)]
    archive: bool,
    /// With --stopped: all that have ended
    #[arg(long, conflicts_with_all = ["sessions", "op_id"])]
    all: bool,
    /// With --all: those that are stopped or failed
    #[arg(long)]
    stopped: bool,
    #[command(flatten)]
    repeat: Repeat,
}

const TOGETHER: &str = "--all and --stopped go together: `rm --all --stopped` removes all sessions that are \
    stopped or failed. Parked and lost ones can run again: remove them by name";

/// Removes them one after the other.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.all != args.stopped {
        return Err(Error::usage(TOGETHER));
    }
    // Writing an archive takes as long as there are files.
    let mut client = if args.archive { context.unlimited_client() } else { context.client() };
    let sessions = if args.all { ended(&mut client)? } else { args.sessions.clone() };
    only_one(&args.repeat, if args.all { 1 } else { sessions.len() })?;
    let mut removed = 0;
    let all = for_each(context, &sessions, |session| {
        remove(context, &mut client, &args, session)?;
        removed += 1;
        Ok(())
    });
    if args.archive && removed > 0 {
        say_where(context, &mut client)?;
    }
    all
}

/// Prints the directory of the archives. They are written even if the directory cannot be asked for.
fn say_where(context: &Context, client: &mut Client) -> Result<(), Error> {
    if context.style.json || context.style.quiet {
        return Ok(());
    }
    let Ok(status) = calls::status(client) else { return Ok(()) };
    let dir = status.state_dir.as_path().join("archive");
    context.say(&format!("archived in {}", escape::line(&dir.to_string_lossy())))
}

/// The ids of the sessions that are stopped or failed.
fn ended(client: &mut Client) -> Result<Vec<String>, Error> {
    let mut views = calls::sessions(client, List { all: true, ..List::default() })?;
    views.retain(|view| matches!(view.session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed));
    Ok(views.iter().map(|view| view.session.id.to_string()).collect())
}

fn remove(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let Args { keep_tmux, force, purge, archive, .. } = *args;
    // The directory is asked for only to tell people what stays.
    let tells = !(context.style.json || context.style.quiet || purge || archive);
    let dir = match tells.then(|| client.ask(Request::Show(session.clone()))) {
        Some(Ok(Response::Session(view))) => Some(view.session.dir),
        _ => None,
    };
    let remove = Remove { session: session.clone(), keep_tmux, force, purge, archive };
    let progress = context.progress(&format!("{session} to be removed"));
    expect_done(&client.change(&args.repeat, Request::Remove(remove))?)?;
    drop(progress);
    if context.style.json {
        let mode = if keep_tmux { "detach" } else { "kill_tmux" };
        return out::json(&json!({"session": session, "removed": true, "mode": mode}));
    }
    let left = dir.map(|dir| dir.as_path().join("work")).filter(|work| work.is_dir());
    let left = left.map(|work| format!("; its files stay in {}", escape::line(&work.to_string_lossy())));
    context.say(&format!("{session}  removed{}", left.unwrap_or_default()))
}
