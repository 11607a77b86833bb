//! Progress of a drain.

use protocol::session::Reason;
use protocol::{Lifecycle, Session};

use crate::pool::Pool;

/// True if a session finishes its queue.
pub(crate) fn drains(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Drained)
}

/// True if a draining session has no message left to work.
pub fn is_drained(pool: &Pool, session: &Session) -> bool {
    drains(session) && pool.is_queue_empty(session.id)
}

/// True if a draining session has messages left: an end that comes now is not that of its drain.
pub fn is_drain_unfinished(pool: &Pool, session: &Session) -> bool {
    drains(session) && !pool.is_queue_empty(session.id)
}
