//! The effect of a user's lock on the pool's own actions.

use protocol::{Session, SessionId};

use crate::pool::Pool;
use crate::volatile::Volatile;

/// True if prompts and starts of a session wait: a user holds its lock, and no prompt that was sent under it waits.
#[must_use]
pub fn holds_back(pool: &Pool, volatile: &Volatile, session: SessionId) -> bool {
    let is_locked = volatile.user_locks.get(session).is_some();
    is_locked && pool.session(session).is_some_and(|session| is_locked_up(pool, session))
}

/// True if a session has a user's lock, and no prompt that was sent under it, or before one that was, is pending.
pub(crate) fn is_locked_up(pool: &Pool, session: &Session) -> bool {
    let Some(lock) = &session.lock else { return false };
    let goes_on = |last| pool.queues.queue(session.id).is_some_and(|queue| queue.has_prompt_up_to(last));
    !lock.last_prompt.is_some_and(goes_on)
}
