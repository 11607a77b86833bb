//! `drain`: a session finishes its queue and what its agent works on, and ends; at its deadline, if it has one, it
//! is ended.

use std::time::Duration;

use protocol::policy::DrainDeadline;
use protocol::{ErrorCode, Event, Lifecycle, Reason, Refusal, Session, Timestamp};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::drain_progress::drains;
use crate::session::lifecycle::{begin_end, has_next_start};
use crate::session::restart_budget;
use crate::turn::Turn;
use crate::worker::check_no_host;

/// Decides on `drain`. Returns no event if the session drains, or is over and does not start again. A deadline
/// replaces an earlier one.
///
/// # Errors
/// Refused for the host of a worker, or if messages wait and nothing could work them; conflict while the session
/// starts or ends.
pub fn drain(pool: &Pool, session: &Session, deadline: Option<DrainDeadline>) -> Result<Vec<Event>, Refusal> {
    check_no_host(session)?;
    let (id, name, exit) = (session.id, &session.name, session.exit);
    let deadline = deadline.map(|deadline| Event::DrainDeadlineSet(id, deadline));
    match (session.lifecycle, session.reason) {
        (Lifecycle::Live, _) => {
            Ok(std::iter::once(begin_end(session, Reason::Drained)).chain(deadline).collect())
        }
        (Lifecycle::Starting, _) => {
            refuse(ErrorCode::Conflict, format!("{name} is just starting; try again"))
        }
        (Lifecycle::Draining, Some(Reason::Drained)) => Ok(deadline.into_iter().collect()),
        (Lifecycle::Draining, Some(Reason::DrainDeadline | Reason::Killed)) => Ok(Vec::new()),
        (Lifecycle::Draining, _) => refuse(ErrorCode::Conflict, format!("{name} is just ending; try again")),
        (Lifecycle::Stopped | Lifecycle::Failed, _) if !has_next_start(session) => Ok(Vec::new()),
        _ if pool.is_queue_empty(id) => {
            let stays = Event::SessionStopped { session: id, reason: Reason::Drained, exit };
            Ok(std::iter::once(stays).chain(restart_budget::reset_budget(session)).collect())
        }
        _ => {
            let why = format!(
                "{name} does not run and has messages to work: `poolctl restore {name}` first, or cancel them"
            );
            refuse(ErrorCode::Refused, why)
        }
    }
}

/// Ends the sessions whose drain has exceeded its deadline. One that has worked off its queue and is being
/// ended already stays `drained`.
pub(crate) fn end_overdue(turn: &mut Turn<'_>) {
    let (pool, now) = (turn.pool(), turn.now());
    let drained = turn.volatile.scheduler.drained();
    let overdue = pool
        .sessions()
        .filter(|s| !drained.contains(&s.id) && left(pool, s, now).is_some_and(|left| left.is_zero()));
    let ended: Vec<Event> = overdue.map(|s| begin_end(s, Reason::DrainDeadline)).collect();
    turn.emit_all(ended);
}

/// The time until the deadline of a session's drain; none without a deadline.
pub(crate) fn left(pool: &Pool, session: &Session, now: Timestamp) -> Option<Duration> {
    let deadline = session.drain_deadline.filter(|_| drains(session))?;
    Some(deadline.after().saturating_sub(pool.age(now, deadline.since)))
}
