//! `rm`: remove sessions' records.

use protocol::request::{List, Remove};
use protocol::{Lifecycle, Request, Response};
use serde_json::json;

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::{escape, out};
use crate::verb::{expect_done, for_each, ls, only_one};

/// Remove sessions; what they run is ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which sessions
    #[arg(required_unless_present_any = ["all", "stopped"], value_name = "SESSION")]
    pub sessions: Vec<String>,
    /// Forget it and let tmux keep it
    #[arg(long, conflicts_with_all = ["purge", "archive"])]
    pub keep_tmux: bool,
    /// Even with work in flight or a client attached
    #[arg(long)]
    pub force: bool,
    /// Its directory too, work included
    #[arg(long)]
    pub purge: bool,
    /// First write what it leaves to STATE_DIR/archive/ID-NAME-STAMP.tar.gz, and read that again
    #[arg(long)]
    pub archive: bool,
    /// With --stopped: all that are over
    #[arg(long, conflicts_with_all = ["sessions", "op_id"])]
    pub all: bool,
    /// With --all: those that are stopped or failed
    #[arg(long)]
    pub stopped: bool,
    #[command(flatten)]
    pub repeat: Repeat,
}

const TOGETHER: &str = "--all and --stopped go together: `rm --all --stopped` removes all that are over \
    (stopped or failed). What is parked or lost can run again, and goes only by its name";

/// Removes them one after the other.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if args.all != args.stopped {
        return Err(Error::usage(TOGETHER));
    }
    // How long an archive takes depends on how much there is.
    let mut client = if args.archive { context.patient_client() } else { context.client() };
    let sessions = if args.all { stopped(&mut client)? } else { args.sessions.clone() };
    only_one(&args.repeat, if args.all { 1 } else { sessions.len() })?;
    let mut removed = 0;
    let all = for_each(context, &sessions, |session| {
        remove(context, &mut client, args, session)?;
        removed += 1;
        Ok(())
    });
    if args.archive && removed > 0 {
        say_where(context, &mut client)?;
    }
    all.map(|()| exit::OK)
}

/// Says where the archives are. That nobody can tell is no failure: they are written.
fn say_where(context: &Context, client: &mut Client) -> Result<(), Error> {
    if context.style.json || context.style.quiet {
        return Ok(());
    }
    match client.ask(Request::Status) {
        Ok(Response::Status(status)) => {
            let dir = status.state_dir.as_path().join("archive");
            context.say(&format!("archived below {}", escape::line(&dir.to_string_lossy())))
        }
        _ => Ok(()),
    }
}

fn stopped(client: &mut Client) -> Result<Vec<String>, Error> {
    let list = List { all: true, ..List::default() };
    let over = |state| matches!(state, Lifecycle::Stopped | Lifecycle::Failed);
    let views = ls::sessions(client, list)?.into_iter().filter(|view| over(view.session.lifecycle));
    Ok(views.map(|view| view.session.id.to_string()).collect())
}

fn remove(context: &Context, client: &mut Client, args: &Args, session: &str) -> Result<(), Error> {
    let session = context.session(session)?;
    let Args { keep_tmux, force, purge, archive, .. } = *args;
    // Only to say what is left.
    let asks = !(context.style.json || context.style.quiet || purge || archive);
    let dir = match asks.then(|| client.ask(Request::Show(session.clone()))) {
        Some(Ok(Response::Session(view))) => Some(view.session.dir),
        _ => None,
    };
    let remove = Remove { session: session.clone(), keep_tmux, force, purge, archive };
    let progress = context.progress(&format!("{session} to be gone"));
    expect_done(&client.change(&args.repeat, Request::Remove(remove))?)?;
    drop(progress);
    if context.style.json {
        let mode = if keep_tmux { "detach" } else { "kill_tmux" };
        return out::json(&json!({"session": session, "removed": true, "mode": mode}));
    }
    let left = dir.map(|dir| dir.as_path().join("work")).filter(|work| work.is_dir());
    let left = left.map(|work| format!("; its work stays in {}", escape::line(&work.to_string_lossy())));
    context.say(&format!("{session}  removed{}", left.unwrap_or_default()))
}
