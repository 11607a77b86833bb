//! Stopping the supervisor, and ending the sessions of a pool.

use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::LockView;
use protocol::request::{Kill, List, Park};
use protocol::{ErrorCode, Refusal, Request, SessionView};

use crate::calls::expected;
use crate::show::escape;
use crate::targets::{Target, for_all};
use crate::{Client, Context, Error, Repeat, expect_session, supervisor_lock};

/// Time limit for the supervisor: 10 s for all daemons, and more for those that come after one that hangs.
const LIMIT: Duration = Duration::from_secs(20);
/// Maximum number of times that sessions are listed and ended: others may be started while no connection holds back the
/// starts.
const ROUNDS: u32 = 5;
/// Time limit for the daemon to list the sessions.
const LIST_LIMIT: Duration = Duration::from_secs(2);

/// Stops the supervisor, which stops its daemons first. Returns false if there is none.
///
/// # Errors
/// It cannot be signalled, or does not end in time.
pub(crate) fn supervisor(context: &Context) -> Result<bool, Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot stop the supervisor: {error}"));
    let Some(id) = supervisor_lock::holder(&context.paths.up_lock) else { return Ok(false) };
    let Some(handle) = Handle::open(id).map_err(failed)? else { return Ok(false) };
    let _progress = context.progress("the daemons to stop");
    handle.signal(Signal::SIGTERM).map_err(failed)?;
    // A supervisor that is stopped, as by Ctrl-Z, takes the TERM only once it continues.
    handle.signal(Signal::SIGCONT).map_err(failed)?;
    if handle.wait(LIMIT).map_err(failed)? {
        Ok(true)
    } else {
        Err(Error::timeout(format!("the supervisor (pid {}) has not ended within {LIMIT:?}", id.pid)))
    }
}

/// Ends all running sessions at the same time. Workers are paused, even those that only wait for messages, and continue
/// when the pool is started again. No other session is started while the returned client exists.
pub(crate) fn sessions(context: &Context) -> Result<Client, Error> {
    let mut holder = context.client();
    for round in 0..ROUNDS {
        // Repeated each time, because the hold is lost with its connection: a new poold may have started sessions
        // meanwhile.
        match holder.ask(Request::HoldStarts) {
            // A poold of an older build does not know this request.
            Err(error) if error.code() == ErrorCode::Protocol => {}
            held => drop(held?),
        }
        let (sessions, workers) = (running_sessions(context)?, workers(context)?);
        let runs = |views: &[SessionView]| views.iter().any(|view| view.session.lifecycle.holds_slot());
        if round == 0 {
            check_unlocked(context, &sessions)?;
        } else if !runs(&sessions) && !runs(&workers) {
            break;
        }
        end_all(context, (&sessions, &workers))?;
    }
    Ok(holder)
}

/// Refuses while somebody else holds the lock of any of the sessions, so that either all sessions are ended or none.
fn check_unlocked(context: &Context, sessions: &[SessionView]) -> Result<(), Error> {
    let is_others = |lock: &&LockView| lock.expires_at.is_some() && Some(lock.token) != context.lock;
    let locked = sessions.iter().find_map(|view| Some((view, view.lock.as_ref().filter(is_others)?)));
    let Some((view, lock)) = locked else { return Ok(()) };
    let why = format!(
        "{} is locked ({}), so nothing was ended: wait, or run this under its lock",
        view.session.name,
        escape::line(&lock.purpose)
    );
    Err(Refusal::conflict(why).into())
}

fn end_all(context: &Context, (sessions, workers): (&[SessionView], &[SessionView])) -> Result<(), Error> {
    let targets: Vec<Target> = sessions.iter().chain(workers).map(Target::of).collect();
    let is_worker = |target: &Target| workers.iter().any(|view| target.session == view.session.id.into());
    let ask = |target: &Target| {
        let session = target.session.clone();
        let end = match is_worker(target) {
            true => Request::Park(Park { session, force: true, grace_ms: None }),
            false => Request::Kill(Kill { session, grace_ms: None }),
        };
        // Their grace may be longer than the usual limit of an answer.
        expect_session(context.unlimited_client().change(&Repeat::default(), end)?)
    };
    for_all(context, (&targets, "to end"), ask, |_, _| Ok(()))
}

/// The sessions that run.
pub(crate) fn running_sessions(context: &Context) -> Result<Vec<SessionView>, Error> {
    let mut views = list(context, List::default())?;
    views.retain(|view| view.session.lifecycle.holds_slot());
    Ok(views)
}

/// The sessions of the pool's workers.
fn workers(context: &Context) -> Result<Vec<SessionView>, Error> {
    list(context, List { all: true, workers: true, ..List::default() })
}

fn list(context: &Context, which: List) -> Result<Vec<SessionView>, Error> {
    expected!(context.client().ask_once(Request::List(which), LIST_LIMIT)?, Sessions)
}
