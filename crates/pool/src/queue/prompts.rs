//! The prompts of a session: the next one, and the one that its agent has.

use protocol::{Incarnation, MessageState, PROMPT, Session, SessionId, Timestamp};

use crate::lock::prompts::newest_prompt;
use crate::pool::Pool;
use crate::queue::claim;
use crate::queue::pending::PendingMessage;

/// The sessions whose next prompt can be typed now.
pub fn deliverable(pool: &Pool, now: Timestamp) -> impl Iterator<Item = SessionId> + '_ {
    pool.sessions().filter(move |s| next_prompt(pool, s.id, now).is_some()).map(|s| s.id)
}

/// The prompt to type next into a session, if it can be typed now.
pub fn next_prompt(pool: &Pool, session: SessionId, now: Timestamp) -> Option<PendingMessage<'_>> {
    let takes = |s: &Session| s.takes_prompts() && s.incarnation.as_ref().is_some_and(has_open_pane);
    pool.session(session).filter(|s| takes(s))?;
    claim::head(pool, session, PROMPT, now)
}

/// Time at which the oldest prompt of a session was queued, if its next prompt is due.
pub(crate) fn due_prompt(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Timestamp> {
    claim::head(pool, session, PROMPT, now)?;
    pool.prompts(session).oldest
}

/// Time before which the next prompt of a session may not be typed.
pub(crate) fn next_prompt_at(pool: &Pool, session: SessionId) -> Option<Timestamp> {
    waiting_prompt(pool, session)?.not_before
}

/// The next queued prompt of a session, due or not.
pub fn waiting_prompt(pool: &Pool, session: SessionId) -> Option<PendingMessage<'_>> {
    let queue = pool.queues.queue(session)?;
    let (kind, prompts) = queue.kind(PROMPT)?;
    Some(queue.pending_message(session, kind, queue.next_in(prompts, newest_prompt(pool, session))?))
}

/// The prompt of a session that is in flight or in doubt.
pub fn held_prompt(pool: &Pool, session: SessionId) -> Option<PendingMessage<'_>> {
    pool.queues.queue(session)?.held(session).find(|message| message.kind == PROMPT)
}

/// True if a session's agent has a prompt, or is about to get one.
pub fn has_prompt_work(pool: &Pool, session: SessionId, now: Timestamp) -> bool {
    let held = held_prompt(pool, session).is_some_and(|message| message.state != MessageState::InDoubt);
    // A prompt that is not due is no work for the agent by itself, unless it is a retry.
    let others = pool.prompts(session).waiting > 1;
    let comes = |message: &PendingMessage<'_>| {
        others || message.attempts > 0 || message.not_before.is_none_or(|at| at <= now)
    };
    held || waiting_prompt(pool, session).is_some_and(|message| comes(&message))
}

fn has_open_pane(run: &Incarnation) -> bool {
    !run.dead && run.server.is_some() && run.pane.is_some()
}
