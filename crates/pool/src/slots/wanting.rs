//! The sessions that want a slot.

use protocol::{Lifecycle, Session, SessionId, Timestamp};

use crate::agent::activity::current_activity;
use crate::pool::Pool;
use crate::queue::prompts::{due_prompt, next_prompt_at};

/// The sessions that start without a user's request, in the order in which the reason arose: parked ones with a due
/// prompt, and those whose start is due.
pub fn wanting_start(pool: &Pool, now: Timestamp) -> Vec<SessionId> {
    let since = |s: &Session| Some((wanting_since(pool, s, now)?, s.id));
    let mut wanting: Vec<(Timestamp, SessionId)> = pool.user_sessions().filter_map(since).collect();
    wanting.sort_unstable();
    wanting.into_iter().map(|(_, id)| id).collect()
}

/// Time since which a session wants a slot, if it does.
pub(crate) fn wanting_since(pool: &Pool, session: &Session, now: Timestamp) -> Option<Timestamp> {
    if session.lifecycle.holds_slot() || session.budget.exhausted {
        return None;
    }
    if let Some(due) = session.budget.due_at {
        return (due <= now).then_some(due);
    }
    let parked = session.lifecycle == Lifecycle::Parked && limited_until(pool, session, now).is_none();
    let waits = due_prompt(pool, session.id, now).filter(|_| parked)?;
    Some(waits.max(session.changed_at))
}

/// End of its agent's usage limit, before which waking it is useless.
fn limited_until(pool: &Pool, session: &Session, now: Timestamp) -> Option<Timestamp> {
    current_activity(pool, session).limited_until.filter(|until| *until > now)
}

/// Time of the next start that is not due yet.
pub fn next_start(pool: &Pool, now: Timestamp) -> Option<Timestamp> {
    let at = |s: &Session| {
        if s.lifecycle.holds_slot() || s.budget.exhausted {
            return None;
        }
        let prompts = pool.prompts(s.id);
        let wakes = s.lifecycle == Lifecycle::Parked && prompts.waiting > 0 && !prompts.held;
        let later = || {
            let due = next_prompt_at(pool, s.id).filter(|at| *at > now);
            [due, limited_until(pool, s, now)].into_iter().flatten().max().filter(|_| wakes)
        };
        s.budget.due_at.or_else(later)
    };
    pool.user_sessions().filter_map(at).filter(|at| *at > now).min()
}
