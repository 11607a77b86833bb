//! Retention of ended sessions.

use std::time::Duration;

use protocol::{Lifecycle, Reason, Session, SessionId, Timestamp};

use crate::pool::Pool;
use crate::session::lifecycle::is_restarting;
use crate::settings::Settings;
use crate::slots::eviction::is_parkable;

/// The sessions whose retention time is over, with the reason of their removal.
pub fn past_retention<'a>(
    pool: &'a Pool,
    settings: &'a Settings,
    keep_stopped: Option<Duration>,
    now: Timestamp,
) -> impl Iterator<Item = (&'a Session, Reason)> {
    let reason = move |session| retention_over(pool, (settings, keep_stopped), session, now);
    pool.sessions().filter_map(move |session| Some((session, reason(session)?)))
}

/// The reason of a session's removal, if its retention time is over.
pub fn retention_over(
    pool: &Pool,
    (settings, keep_stopped): (&Settings, Option<Duration>),
    session: &Session,
    now: Timestamp,
) -> Option<Reason> {
    let over = matches!(session.lifecycle, Lifecycle::Stopped | Lifecycle::Failed);
    let aside = matches!(session.lifecycle, Lifecycle::Parked | Lifecycle::Lost);
    let settled = session.budget.due_at.is_none() && !is_restarting(session);
    let age = pool.age(now, session.changed_at);
    if let Some(worker) = &session.worker {
        let goes = worker.removed
            && session.lock.is_none()
            && !session.lifecycle.holds_slot()
            && pool.is_queue_empty(session.id);
        return goes.then_some(Reason::ApiDelete);
    }
    if session.policy.pinned || session.lock.is_some() {
        return None;
    }
    // An ephemeral session that gave up its slot and cannot resume counts as ended.
    let evicted = session.lifecycle == Lifecycle::Parked
        && session.reason == Some(Reason::Evicted)
        && !is_parkable(settings, session)
        && pool.is_queue_empty(session.id);
    let keep = if has_worker_messages(pool, session.id) { EPHEMERAL_WORK } else { EPHEMERAL_KEEP };
    if (over || evicted) && settled && session.policy.ephemeral && age >= keep {
        return Some(Reason::Ephemeral);
    }
    let own = session.policy.ttl_ms.map(|ms| (ms != u64::MAX).then(|| Duration::from_millis(ms)));
    let keep = if over { own.unwrap_or(keep_stopped) } else { own.flatten() }?;
    let goes = (over || aside) && pool.is_queue_empty(session.id) && settled && age >= keep;
    goes.then_some(Reason::Ttl)
}

/// Time for which an ephemeral session is kept after its end, so that its exit can be read.
const EPHEMERAL_KEEP: Duration = Duration::from_secs(10);

/// Time for which an ephemeral session is kept for messages that workers have not worked yet, such as the summary of
/// its last turn.
const EPHEMERAL_WORK: Duration = Duration::from_secs(3600);

/// True if a session has messages of other kinds than prompts, which its program need not run for.
pub(super) fn has_worker_messages(pool: &Pool, id: SessionId) -> bool {
    let prompts = pool.prompts(id);
    pool.queue_size(id).0 > prompts.waiting + u64::from(prompts.held)
}
