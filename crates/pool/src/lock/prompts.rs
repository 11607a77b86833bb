//! The prompts that a session gets while a user has locked it: those that were sent under the lock, and older ones.

use protocol::{MessageId, PROMPT, Session, SessionId};

use crate::pool::Pool;

/// True if a session has a user's lock, and no prompt that was sent under it is pending.
pub(crate) fn is_locked_without_prompts(pool: &Pool, session: &Session) -> bool {
    session.lock.is_some() && newest_prompt(pool, session.id).is_none()
}

/// Returns the newest prompt that a session may get under its user's lock. It and all older ones are typed, whatever
/// the priority of prompts that others sent later. `None` without a lock, or if no prompt that was sent under the lock
/// is pending.
pub(crate) fn newest_prompt(pool: &Pool, session: SessionId) -> Option<MessageId> {
    let lock = pool.session(session)?.lock.as_ref()?;
    lock.prompts.iter().rev().find(|prompt| pool.pending_message(session, **prompt).is_some()).copied()
}

/// As [`newest_prompt`], for messages of any kind.
pub(crate) fn newest_of(pool: &Pool, session: SessionId, kind: &str) -> Option<MessageId> {
    newest_prompt(pool, session).filter(|_| kind == PROMPT)
}
