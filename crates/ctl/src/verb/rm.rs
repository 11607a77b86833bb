//! `rm`: removes sessions.

use std::fs;
use std::path::Path;

use protocol::request::Remove;
use protocol::{OsBytes, Request, Response};
use serde_json::json;

use crate::calls::{self};
use crate::show::{escape, out};
use crate::targets::{Scope, Target, Targets, for_all};
use crate::{Context, Error, Repeat};

/// Remove sessions; what they run is ended
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    targets: Targets,
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
    /// Of a selection only those that are stopped or failed
    #[arg(long, requires = "Selection")]
    stopped: bool,
    #[command(flatten)]
    repeat: Repeat,
}

/// Removes them at the same time.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    let scope = if args.stopped { Scope::Ended } else { Scope::Any };
    let targets = args.targets.find(context, &args.repeat, (scope, "to remove"))?;
    let mut removed = 0;
    let ask = |target: &Target| remove(context, &args, target);
    let all = for_all(context, (&targets, "to be removed"), ask, |target, dir| {
        removed += 1;
        tell(context, &args, (target, dir))
    });
    if args.archive && removed > 0 {
        say_where(context)?;
    }
    all
}

/// Prints the directory of the archives. They are written even if the directory cannot be asked for.
fn say_where(context: &Context) -> Result<(), Error> {
    if context.style.json || context.style.quiet {
        return Ok(());
    }
    let Ok(status) = calls::status(&mut context.client()) else { return Ok(()) };
    let dir = status.state_dir.as_path().join("archive");
    context.say(&format!("archived in {}", escape::line(&dir.to_string_lossy())))
}

/// Removes a session. Returns its directory, where people are told what stays there.
fn remove(context: &Context, args: &Args, target: &Target) -> Result<Option<OsBytes>, Error> {
    let Args { keep_tmux, force, purge, archive, .. } = *args;
    // Writing an archive takes as long as there are files, and the end of a program as the configuration says.
    let mut client = context.unlimited_client();
    let session = target.session.clone();
    let tells = !(context.style.quiet || purge);
    let dir = match tells.then(|| client.ask(Request::Show(session.clone()))) {
        Some(Ok(Response::Session(view))) => Some(view.session.dir),
        _ => None,
    };
    let remove = Remove { session, keep_tmux, force, purge, archive, only_ended: args.stopped };
    calls::expect_removed(&client.change(&args.repeat, Request::Remove(remove))?)?;
    Ok(dir)
}

/// True if there is anything in the directory.
fn has_files(dir: &Path) -> bool {
    fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

fn tell(context: &Context, args: &Args, (target, dir): (&Target, Option<OsBytes>)) -> Result<(), Error> {
    let session = &target.session;
    let left = dir.map(|dir| dir.as_path().join("work")).filter(|work| has_files(work));
    if context.style.json {
        let mode = if args.keep_tmux { "detach" } else { "kill_tmux" };
        let left = left.map(OsBytes::from);
        return out::json(&json!({"session": session, "removed": true, "mode": mode, "left": left}));
    }
    let left = left.map(|work| format!("; its files stay in {}", escape::line(&work.to_string_lossy())));
    context.say(&format!("{session}  removed{}", left.unwrap_or_default()))
}
