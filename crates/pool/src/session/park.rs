//! `park`: a session gives up its slot and can resume.

use protocol::{ActivityState, ErrorCode, Event, Lifecycle, Reason, Refusal, Session};

use crate::agent::activity::current_activity;
use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::in_use::check_unused;
use crate::session::lifecycle::begin_end;
use crate::worker::check_no_host;

/// Decides on `park`. Returns no event if the session is parked, or on its way there.
///
/// # Errors
/// Conflict if the session is in use, unless forced, or while it starts or ends; refused if it does not run,
/// was adopted, or is the host of a worker and the parking is not forced.
pub fn park(pool: &Pool, session: &Session, force: bool) -> Result<Vec<Event>, Refusal> {
    if session.worker.is_some() {
        return if force { Ok(pause_host(session)) } else { check_no_host(session).map(|()| Vec::new()) };
    }
    let name = &session.name;
    match (session.lifecycle, session.reason) {
        (Lifecycle::Parked, _) => return Ok(Vec::new()),
        (Lifecycle::Draining, Some(reason)) if reason.parks() => return Ok(Vec::new()),
        (Lifecycle::Live, _) => {}
        (Lifecycle::Starting | Lifecycle::Draining, _) | (Lifecycle::Stopped, Some(Reason::Restarted)) => {
            return refuse(ErrorCode::Conflict, format!("{name} is just starting or ending; try again"));
        }
        (Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Lost, _) => {
            return refuse(ErrorCode::Refused, format!("{name} does not run, so it holds no slot"));
        }
    }
    if session.incarnation.as_ref().is_some_and(protocol::Incarnation::is_adopted) {
        let why = format!("{name} was adopted: the pool does not know how to start it again");
        return refuse(ErrorCode::Refused, why);
    }
    if !force {
        check_unused(pool, session, "park --force parks it all the same; what waits wakes it again")?;
        check_at_rest(pool, session)?;
    }
    Ok(vec![begin_end(session, Reason::Parked)])
}

/// Refuses an agent that says that it is in a turn, which would be lost.
fn check_at_rest(pool: &Pool, session: &Session) -> Result<(), Refusal> {
    let shown = current_activity(pool, session);
    let is_told = shown.source.is_report();
    if shown.state != ActivityState::Busy || !is_told {
        return Ok(());
    }
    let why = format!("the agent of {} is busy; park --force parks it all the same", session.name);
    refuse(ErrorCode::Conflict, why)
}

/// Ends the host of a worker for a stop of the whole pool. What its user stopped stays so.
fn pause_host(session: &Session) -> Vec<Event> {
    let is_over = match (session.lifecycle, session.reason) {
        (Lifecycle::Draining, Some(reason)) => reason == Reason::Killed || reason.parks(),
        (lifecycle, _) => !lifecycle.holds_slot(),
    };
    if is_over { Vec::new() } else { vec![begin_end(session, Reason::Parked)] }
}
