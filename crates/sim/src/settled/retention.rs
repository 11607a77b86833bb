//! Sessions that are removed some time after their end.

use std::time::Duration;

use protocol::{Lifecycle, SessionView};
use world::clock::Clock;

use super::starts::is_restarting;
use crate::land::Land;

/// Retention of an ephemeral session that has ended.
const EPHEMERAL_KEEP: Duration = Duration::from_secs(10);

/// Returns which session is to be removed now.
pub(super) fn due(land: &Land, sessions: &[SessionView]) -> Option<String> {
    let now = land.clock.now();
    let is_due = |found: &&SessionView| {
        keep(land, found).is_some_and(|keep| now.since(found.session.changed_at) > keep)
    };
    let found = sessions.iter().find(is_due).filter(|_| land.climate.clock_steps == 0)?;
    Some(format!("{} is to be removed, and is still there: {:?}", found.session.name, found.session.policy))
}

/// Returns the time for which a session is kept after its end; `None` for one that stays, or is in use. What was lost
/// or parked goes only if it has a time of its own.
fn keep(land: &Land, found: &SessionView) -> Option<Duration> {
    let (session, queue) = (&found.session, &found.queue);
    let is_used = session.policy.pinned
        || found.lock.is_some()
        || session.budget.due_at.is_some()
        || is_restarting(session)
        || queue.queued + queue.claimed + queue.in_doubt > 0;
    let is_over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
    if is_used || session.lifecycle.holds_slot() {
        return None;
    }
    match session.policy.ttl_ms {
        _ if is_over && session.policy.ephemeral => Some(EPHEMERAL_KEEP),
        None if is_over => land.climate.keep_stopped,
        None | Some(u64::MAX) => None,
        Some(ms) => Some(Duration::from_millis(ms)),
    }
}
