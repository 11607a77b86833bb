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
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::{health, lock, orphans};
use crate::verb::{expect_session, for_each};

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
    let mut client = context.client();
    let mut alive = running(&mut client);
    if args.stop_sessions {
        alive = match alive {
            Err(error) if is_there(context, &error) => return Err(error),
            Err(error) => Err(error),
            Ok(views) => {
                for_each(context, &views, |view| kill(context, &mut client, view))?;
                running(&mut client)
            }
        };
    }
    let mut stopped = stop(context)?;
    if (stopped || lock::is_orphaned(&context.paths.up_lock))
        && let Some(left) = health::look(context)
    {
        let _progress = context.progress("the daemons to stop");
        orphans::end(&left)?;
        stopped = true;
    }
    if let Some(left) = health::look(context) {
        return Err(still_there(&left, stopped));
    }
    if lock::is_held(&context.paths.lock) {
        return Err(Error::failed("poold still runs, and does not answer"));
    }
    tell(context, stopped, alive.ok().map(|views| views.len()))?;
    Ok(exit::OK)
}

/// The sessions that run.
fn running(client: &mut Client) -> Result<Vec<SessionView>, Error> {
    let mut views = match client.ask_once(Request::List(List::default()), LOOK)? {
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

fn kill(context: &Context, client: &mut Client, view: &SessionView) -> Result<(), Error> {
    let _progress = context.progress(&format!("{} to end", view.session.id));
    let kill = Kill { session: view.session.id.into(), grace_ms: None };
    expect_session(client.change(&Repeat::default(), Request::Kill(kill))?).map(drop)
}

/// Whether there was a supervisor to stop.
fn stop(context: &Context) -> Result<bool, Error> {
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
