//! The effect of a user's lock on the pool's own actions.

use protocol::SessionId;

use crate::pool::Pool;
use crate::volatile::Volatile;

/// True if prompts and starts of a session wait: a user holds its lock and has sent nothing under it.
#[must_use]
pub fn holds_back(pool: &Pool, volatile: &Volatile, session: SessionId) -> bool {
    let lock = pool.session(session).and_then(|session| session.lock.as_ref());
    volatile.user_locks.get(session).is_some() && !lock.is_some_and(|lock| lock.used_for_send)
}
