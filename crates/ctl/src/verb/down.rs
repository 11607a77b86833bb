//! `down`: stop the daemons that `up` keeps. Sessions live on.

use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::SessionView;
use protocol::request::{Kill, List};
use protocol::{Request, Response};
use serde_json::json;

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;
use crate::show::out;
use crate::up::{health, lock};
use crate::verb::{expect_session, for_each};

/// How long the supervisor may take: it kills what has not stopped after 10 s.
const LIMIT: Duration = Duration::from_secs(15);
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
        for_each(&alive.clone().unwrap_or_default(), |view| kill(context, &mut client, view))?;
        alive = running(&mut client);
    }
    let stopped = stop(context)?;
    if !stopped && let Some(found) = health::look(context) {
        return Err(Error::failed(format!(
            "poold (pid {}) was not started by `poolctl up`: stop it the way it was started",
            found.process.pid
        )));
    }
    tell(context, stopped, alive.map(|views| views.len()))?;
    Ok(exit::OK)
}

/// The sessions that run; `None` where nobody can tell.
fn running(client: &mut Client) -> Option<Vec<SessionView>> {
    match client.ask_once(Request::List(List::default()), LOOK) {
        Ok(Response::Sessions(mut views)) => {
            views.retain(|view| view.session.lifecycle.holds_slot());
            Some(views)
        }
        _ => None,
    }
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
