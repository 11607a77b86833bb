//! The effect of a user's lock on the pool's own actions.

use protocol::SessionId;

use crate::lock::prompts::is_locked_without_prompts;
use crate::pool::Pool;
use crate::volatile::Volatile;

/// True if a session's prompts and automatic starts wait, because a user holds its lock and no prompt that was sent
/// under the lock is pending.
pub fn holds_back(pool: &Pool, volatile: &Volatile, session: SessionId) -> bool {
    let is_locked = volatile.user_locks.get(session).is_some();
    is_locked && pool.session(session).is_some_and(|session| is_locked_without_prompts(pool, session))
}
