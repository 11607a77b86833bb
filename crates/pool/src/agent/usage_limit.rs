//! The end of an agent's usage limit.

use std::time::Duration;

use protocol::clock::ClockStep;
use protocol::{Activity, Event, MessageState, Session, Timestamp};

use crate::agent::activity::activity_changed;
use crate::agent::hook_inputs::is_before;
use crate::clock::{self, Moment};
use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::transition::transition;

/// Pause of an agent whose usage limit has no known end, the first time and each further time. A limit of some minutes
/// is over by then; with a longer one a failed retry costs little.
pub const UNKNOWN_LIMIT_PAUSE: Duration = Duration::from_secs(15 * 60);

/// First pause before an agent is retried that reached its limit again when it was told to continue: the time that it
/// displays has no seconds, and its vendor's clock may differ.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Longest of these pauses, which double.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10 * 60);

/// Longest time that the report of a limit takes from the agent to the pool.
const REPORTED_WITHIN: Duration = Duration::from_secs(10);

/// Moves the ends of limits of unknown length by a step of the clock: they are pauses that the pool chose, not times
/// that the agent told. They are recognised by their length, as the record does not mark them. A session that is
/// parked for its limit, or was retried, keeps its time.
pub(crate) fn shift_unknown_limits(pool: &Pool, step: ClockStep) -> Vec<Event> {
    let shifted = |session: &Session| {
        let before = pool.activity(session.id)?;
        let until = before.limited_until?;
        let earliest = pool.time_after(step.before, before.since, UNKNOWN_LIMIT_PAUSE);
        let limited_until = Some(clock::shifted(step, until));
        let after = Activity { limited_until, ..before.clone() };
        let is_pause = (earliest..=earliest.after(REPORTED_WITHIN)).contains(&until);
        activity_changed(session, before, after).filter(|_| is_pause)
    };
    pool.sessions().filter_map(shifted).collect()
}

/// Returns the time until which a limited agent gets no prompt: the end of its limit, perhaps told in words in its
/// report of `at`; or, if that has passed and the agent meets the limit again, the end of a pause, which doubles each
/// time.
pub(crate) fn limited_until(
    until: Option<Timestamp>,
    error: &str,
    (resumes, at, now): (u32, Timestamp, Timestamp),
) -> Timestamp {
    let Some(told) = until.or_else(|| agents::payload::limit_reset(error, at)) else {
        return now.after(UNKNOWN_LIMIT_PAUSE);
    };
    // An exact time counts even if it has just passed. A time in words has no seconds, so it counts only if it is
    // ahead.
    if resumes == 0 && (until.is_some() || told > now) {
        return told;
    }
    let pause = RETRY_PAUSE.saturating_mul(1 << resumes.saturating_sub(1).min(8)).min(RETRY_PAUSE_MAX);
    told.max(now.after(pause))
}

/// Cancels the queued message that is to tell an agent to continue, as the agent has finished a turn, by its report of
/// `moment`: its limit is over and it works again. A late report of a turn from before the limit ends nothing.
#[must_use]
pub fn cancel_continue(
    pool: &Pool,
    message: &PendingMessage<'_>,
    (moment, now): (Moment, Timestamp),
) -> Option<Event> {
    if is_before(pool, (moment, now), message.created_at) {
        return None;
    }
    let is_due = message.not_before.is_none_or(|at| at <= now);
    let why = if is_due {
        "it finished a turn after its usage limit, before it was told to"
    } else {
        "it finished a turn before the end of its usage limit"
    };
    Some(transition(message, MessageState::Cancelled, Some(why.into()), now))
}
