//! `drain`: a session finishes its queue and ends.

use protocol::session::Reason;
use protocol::{ErrorCode, Event, Lifecycle, Refusal, Session};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::lifecycle::{begin_end, has_next_start};
use crate::session::restart_budget;

/// Decides on `drain`. Returns no event if the session drains, or is over and does not start again.
///
/// # Errors
/// Refused if messages wait and nothing could work them; conflict while the session starts or ends.
pub fn drain(pool: &Pool, session: &Session) -> Result<Vec<Event>, Refusal> {
    let (id, name, exit) = (session.id, &session.name, session.exit);
    match (session.lifecycle, session.reason) {
        (Lifecycle::Live, _) => Ok(vec![begin_end(session, Reason::Drained)]),
        (Lifecycle::Starting, _) => {
            refuse(ErrorCode::Conflict, format!("{name} is just starting; try again"))
        }
        (Lifecycle::Draining, Some(Reason::Drained | Reason::Killed)) => Ok(Vec::new()),
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

/// True if a draining session has no message left to work.
#[must_use]
pub fn is_drained(pool: &Pool, session: &Session) -> bool {
    let drains = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Drained);
    drains && pool.is_queue_empty(session.id)
}
