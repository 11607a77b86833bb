//! `status`: the components and their health; exit 0 only when healthy.

use std::time::Duration;

use protocol::reply::Status;
use protocol::{ErrorCode, Refusal, Request};

use crate::daemon_absence::recovery;
use crate::show::{out, status, time};
use crate::up::{builds, orphans};
use crate::{Context, Error, calls, describe, exit, supervisor_lock};

/// Time limit for the answer of a daemon that recovers its database.
const RECOVERY_LIMIT: Duration = Duration::from_secs(1);
/// The exit code for a pool that is not healthy, as for a failed command.
const NOT_HEALTHY: u8 = 1;

/// Show the pool's health; exit 0 only when healthy
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A session to show instead, as `show` does
    session: Option<String>,
}

pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    if let Some(session) = &args.session {
        return describe::session(context, session).map(|()| exit::OK);
    }
    let found = status_or_progress(context)?;
    let old = builds::outdated(context, Some(&found));
    let unkept = unkept(context);
    let is_healthy = status::is_healthy(&found) && unkept.is_none();
    if context.style.json {
        let mut document = status::document(&found);
        document["outdated"] = old.iter().map(|one| one.name).collect();
        document["unkept"] = serde_json::json!(unkept.is_some());
        document["healthy"] = serde_json::json!(is_healthy);
        out::json(&document)?;
    } else {
        context.say(status::overview(&found, is_healthy, context.style, time::now()).trim_end())?;
        let kept = Some(builds::kept(&old)).filter(|kept| !kept.is_empty());
        let kept = kept.map(|kept| {
            format!("older build: {kept}; {} restarts them, sessions keep running", restart_command(context))
        });
        kept.into_iter().chain(builds::others(&old)).try_for_each(|line| context.say(&line))?;
        if let Some(why) = unkept {
            let problem = context.style.paint(31, "problem:");
            context.say(&format!("{problem} nobody restarts the daemons, as their `poolctl up` {why}"))?;
        }
    }
    Ok(if is_healthy { exit::OK } else { NOT_HEALTHY })
}

/// The command that restarts the daemons that `up` has started.
fn restart_command(context: &Context) -> String {
    let up_lock = &context.paths.up_lock;
    match supervisor_lock::holder(up_lock).filter(|_| supervisor_lock::terms(up_lock).is_foreground) {
        Some(holder) => format!("a restart of `poolctl up --foreground` (pid {})", holder.pid),
        None => "`poolctl up`".to_owned(),
    }
}

/// Says why nobody keeps the daemons running, and what to do: their supervisor was killed, or is stopped.
fn unkept(context: &Context) -> Option<String> {
    let up_lock = &context.paths.up_lock;
    if let Some(pid) = supervisor_lock::stopped_holder(up_lock) {
        return Some(format!("(pid {pid}) is stopped: `kill -CONT {pid}` lets it go on"));
    }
    let is_killed = orphans::are_left(context).unwrap_or(false);
    is_killed.then(|| "was killed: run it again".to_owned())
}

/// The pool's status, or as an error the progress of a daemon that recovers its database and does not answer
/// yet.
fn status_or_progress(context: &Context) -> Result<Status, Error> {
    let Some((pid, percent)) = recovery(&context.paths.run) else {
        return calls::status(&mut context.client());
    };
    match context.client().ask_once(Request::Status, RECOVERY_LIMIT).and_then(calls::expect_status) {
        Err(error) if matches!(error.code(), ErrorCode::Unavailable | ErrorCode::Timeout) => {
            let recovering = format!("poold (pid {pid}) is recovering its database: {percent} %");
            Err(Refusal::unavailable(recovering).into())
        }
        answered => answered,
    }
}
