//! Progress of a drain.

use protocol::{Exit, Lifecycle, Reason, Session};

use crate::pool::Pool;

/// True if a session finishes its queue.
pub fn drains(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Drained)
}

/// True if a draining session has no message left to work.
pub fn is_drained(pool: &Pool, session: &Session) -> bool {
    drains(session) && pool.is_queue_empty(session.id)
}

/// True if a draining session has messages left: if its program ended now, the drain would not be finished.
pub fn is_drain_unfinished(pool: &Pool, session: &Session) -> bool {
    drains(session) && !pool.is_queue_empty(session.id)
}

/// True if an end now, for which the program did not ask, would cut off a drain: messages are left, or the program
/// still works. `is_drained` is true once the session was seen at rest and is being ended.
pub fn is_cut_off(pool: &Pool, session: &Session, exit: Option<Exit>, is_drained: bool) -> bool {
    let ended_by_itself = exit.is_some_and(|exit| !exit.is_hangup());
    is_drain_unfinished(pool, session) || (drains(session) && !is_drained && !ended_by_itself)
}
