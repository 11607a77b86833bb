//! `down`: stop the daemons that `up` keeps. Sessions live on.

use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::{SessionView, Status};
use protocol::request::{Kill, List};
use protocol::socket::Paths;
use protocol::{ErrorCode, Request, Response};
use serde_json::json;

use crate::cli::Repeat;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::{builds, health, kept, lock, orphans};
use crate::verb::{expect_session, for_all};

/// How long the supervisor may take: 10 s for all daemons, and more
/// for those that come after one that hangs.
const LIMIT: Duration = Duration::from_secs(20);
/// How long the daemon may take to say which sessions there are.
const LOOK: Duration = Duration::from_secs(2);

/// Stop the pool's daemons; sessions live on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End the sessions first
    #[arg(long)]
    pub stop_sessions: bool,
}

/// Returns when they are stopped.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    if args.stop_sessions && is_inside(context) {
        return from_inside(context);
    }
    let mut alive = running(context);
    if args.stop_sessions {
        alive = match alive {
            Err(error) if is_there(context, &error) => return Err(error),
            Err(error) => Err(error),
            Ok(_) => {
                check_started_by_up(context)?;
                end_sessions(context)?;
                running(context)
            }
        };
    }
    let mut stopped = stop(context)?;
    if (stopped || lock::is_orphaned(&context.paths.up_lock))
        && let Some(left) = health::look(context)
    {
        let _progress = context.progress("the daemons to stop");
        orphans::end(orphans::daemons(&left)?)?;
        stopped = true;
    }
    // Those that an earlier supervisor started, whether or not they are connected to anybody.
    let kept = kept::alive(&context.paths)?;
    stopped |= !kept.is_empty();
    orphans::end(kept.iter().map(|(_, handle)| handle.id()).collect())?;
    if let Some(left) = health::look(context) {
        return Err(still_there(&left, stopped));
    }
    if lock::is_held(&context.paths.lock) {
        return Err(Error::failed("poold still runs, and does not answer"));
    }
    tell(context, stopped, alive.ok().map(|views| views.len()))?;
    Ok(exit::OK)
}

/// Refuses where the daemons were not started by `poolctl up`, which alone can stop them: no session is ended then.
fn check_started_by_up(context: &Context) -> Result<(), Error> {
    let lock = &context.paths.up_lock;
    let kept =
        lock::holder(lock).is_some() || lock::is_orphaned(lock) || !kept::alive(&context.paths)?.is_empty();
    match health::look(context) {
        Some(left) if !kept => Err(still_there(&left, false)),
        _ => Ok(()),
    }
}

/// Tells whether this command runs in a session of the pool that it is to stop.
fn is_inside(context: &Context) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("POOL_INCARNATION").is_some()
        && variable("POOL_SOCKET").is_some_and(|socket| socket == context.paths.socket)
}

/// This command ends with its session, so the supervisor, which is outside of all, does it.
fn from_inside(context: &Context) -> Result<u8, Error> {
    let failed = |error: process::Error| Error::failed(format!("the supervisor is not told: {error}"));
    let refused = |why: &str| {
        let how = "run `poolctl down --stop-sessions` outside of the pool's sessions";
        Err(Error::refused(format!("{why}, and this command would end with its session: {how}")))
    };
    let Some(id) = lock::holder(&context.paths.up_lock) else {
        return refused("no `poolctl up` keeps this pool");
    };
    if builds::outdated(context, None).contains(&"up") {
        return refused("the `poolctl up` of this pool is of an older build");
    }
    let Some(handle) = Handle::open(id).map_err(failed)? else {
        return refused("the `poolctl up` of this pool has just ended");
    };
    context.say("the pool stops, and this session with it")?;
    handle.signal(Signal::SIGUSR1).map_err(failed)?;
    Ok(exit::OK)
}

/// Ends all sessions that run, together.
pub(crate) fn end_sessions(context: &Context) -> Result<(), Error> {
    let views = running(context)?;
    let _progress = context.progress("the sessions to end");
    let ask = |view: &SessionView| {
        let kill = Kill { session: view.session.id.into(), grace_ms: None };
        expect_session(context.client().change(&Repeat::default(), Request::Kill(kill))?)
    };
    for_all(context, &views, ask, |_| Ok(()))
}

/// The sessions that run.
fn running(context: &Context) -> Result<Vec<SessionView>, Error> {
    let mut views = match context.client().ask_once(Request::List(List::default()), LOOK)? {
        Response::Sessions(views) => views,
        other => return Err(Error::unexpected(&other)),
    };
    views.retain(|view| view.session.lifecycle.holds_slot());
    Ok(views)
}

/// Whether there is a pool, though asking it failed like this.
fn is_there(context: &Context, error: &Error) -> bool {
    let Paths { up_lock, lock, .. } = &context.paths;
    error.code() != ErrorCode::Unavailable || lock::is_held(up_lock) || lock::is_held(lock)
}

fn still_there(left: &Status, stopped: bool) -> Error {
    let pid = left.process.pid;
    Error::failed(if stopped {
        format!("poold (pid {pid}) still answers: somebody else starts it")
    } else {
        format!("poold (pid {pid}) was not started by `poolctl up`: stop it the way it was started")
    })
}

/// Whether there was a supervisor to stop.
pub(crate) fn stop(context: &Context) -> Result<bool, Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot stop the supervisor: {error}"));
    let Some(id) = lock::holder(&context.paths.up_lock) else { return Ok(false) };
    let Some(handle) = Handle::open(id).map_err(failed)? else { return Ok(false) };
    let _progress = context.progress("the daemons to stop");
    handle.signal(Signal::SIGTERM).map_err(failed)?;
    if handle.wait(LIMIT).map_err(failed)? {
        Ok(true)
    } else {
        Err(Error::timeout(format!("the supervisor (pid {}) has not ended within {LIMIT:?}", id.pid)))
    }
}

fn tell(context: &Context, stopped: bool, alive: Option<usize>) -> Result<(), Error> {
    if context.style.json {
        return out::json(&json!({"pool": context.paths.pool, "stopped": stopped, "sessions_alive": alive}));
    }
    let pool = &context.paths.pool;
    let live_on = match alive {
        Some(0) | None => String::new(),
        Some(1) => "; 1 session lives on".to_owned(),
        Some(n) => format!("; {n} sessions live on"),
    };
    let what = if stopped { "stopped" } else { "was not running" };
    context.say(&format!("pool {pool} {what}{live_on}"))
}
