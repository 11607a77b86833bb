//! `restore`: lost sessions run again.

use std::time::Duration;

use protocol::policy::Budget;
use protocol::{Event, Lifecycle, Reason, Session, Timestamp};

use crate::pool::Pool;

/// Makes all sessions start that are lost or about to be, `spacing` apart. This includes sessions that were kept from a
/// start earlier.
#[must_use]
pub fn restore_all(pool: &Pool, spacing: Duration, now: Timestamp) -> Vec<Event> {
    let ending = |s: &&Session| s.lifecycle == Lifecycle::Draining && s.reason == Some(Reason::ServerGone);
    let lost = pool
        .user_sessions()
        .filter(|s| s.lifecycle == Lifecycle::Lost || ending(s) || was_kept_from_start(s));
    let step = |n: usize| spacing.saturating_mul(u32::try_from(n).unwrap_or(u32::MAX));
    let due = |(n, s): (usize, &Session)| {
        let due_at = Some(now.after(step(n)));
        Event::BudgetChanged { session: s.id, budget: Budget { due_at, ..Budget::default() } }
    };
    lost.enumerate().map(due).collect()
}

/// True if a session that ran before could not be started again because of its tmux server, its directory or the disk.
pub(crate) fn was_kept_from_start(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Failed
        && session.incarnations > 1
        && matches!(session.reason, Some(Reason::TmuxFailed | Reason::NameTaken | Reason::Setup))
}
