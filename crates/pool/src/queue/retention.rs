//! Retention of finished messages, bounded by age and by number.

use std::time::Duration;

use protocol::{Event, MessageId, SessionId, Timestamp};

use crate::pool::Pool;
use crate::queue::admin::FORGET_BATCH;
use crate::queue::session_queue::{FinishedList, FinishedMessage};
use crate::settings::QueueRules;

/// Minimum time for which an idempotency key, or an operation id that a user chose, is remembered; for a message it
/// counts from its queueing. Messages beyond the configured number are forgotten earlier.
const KEEP_NAMED: Duration = Duration::from_secs(24 * 3600);

/// Time for which random operation ids are remembered: longer than any client repeats. No message is forgotten
/// for its age before.
pub const KEEP_RANDOM: Duration = Duration::from_secs(10 * 60);

/// Returns the minimum time for which a message is remembered, with or without a key or an operation id that a user
/// chose.
pub fn keep_time(is_named: bool) -> Duration {
    if is_named { KEEP_NAMED } else { KEEP_RANDOM }
}

/// Forgets finished messages whose retention time is over, and the oldest of those that are too many. Fewer events than
/// [`FORGET_BATCH`] mean that none is left.
#[must_use]
pub fn past_retention(pool: &Pool, rules: &QueueRules, now: Timestamp) -> Vec<Event> {
    let keep = usize::try_from(rules.keep_count).unwrap_or(usize::MAX);
    let lists = pool.queues.queues().flat_map(|(session, queue)| {
        [(session, queue.finished(), rules.keep_done), (session, queue.dead(), rules.keep_dead)]
    });
    let outdated = lists.flat_map(|(session, list, age)| {
        past_retention_in(pool, list, (keep, age), now).map(move |id| (id, session))
    });
    let forgotten = |(id, session): (MessageId, SessionId)| Event::MessageForgotten { id, session };
    outdated.take(FORGET_BATCH).map(forgotten).collect()
}

fn past_retention_in(
    pool: &Pool,
    list: &FinishedList,
    (keep, age): (usize, Duration),
    now: Timestamp,
) -> impl Iterator<Item = MessageId> {
    let age_of = move |at: Timestamp| pool.age(now, at);
    let excess = list.len().saturating_sub(keep);
    let old = move |message: &&FinishedMessage| age_of(message.at) > age;
    let may_be_repeated = move |message: &FinishedMessage| {
        age_of(message.created_at()) <= keep_time(pool.queues.is_named(message.id()))
    };
    let by_number = list.values().take(excess);
    let by_age = list.values().skip(excess).take_while(old).filter(move |message| !may_be_repeated(message));
    by_number.chain(by_age).map(FinishedMessage::id)
}
