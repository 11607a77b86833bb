//! What is over is forgotten after a while: bounded by age and by number.

use std::time::Duration;

use protocol::{Event, SessionId, Timestamp};

use super::Rules;
use super::book::{Over, Overs};
use crate::pool::Pool;

/// How long a message with an idempotency key or a given operation id is remembered at least, from
/// when it was queued, unless there are more than the configuration keeps.
const KEEP_NAMED: Duration = Duration::from_secs(24 * 3600);
/// At most so many go at once, so that no turn is held up for long.
const AT_ONCE: usize = 4096;

/// Messages that are over and out of their time.
#[must_use]
pub fn outdated(pool: &Pool, rules: &Rules, now: Timestamp) -> Vec<Event> {
    let keep = usize::try_from(rules.keep_count).unwrap_or(usize::MAX);
    let lists = pool.book.queues().flat_map(|(session, queue)| {
        [(session, &queue.over, rules.keep_done), (session, &queue.dead, rules.keep_dead)]
    });
    lists
        .flat_map(|(session, list, age)| of_list(pool, list, (keep, age), now).map(move |id| (id, session)))
        .take(AT_ONCE)
        .map(|(id, session): (_, SessionId)| Event::MessageForgotten { id, session })
        .collect()
}

fn of_list(
    pool: &Pool,
    list: &Overs,
    (keep, age): (usize, Duration),
    now: Timestamp,
) -> impl Iterator<Item = protocol::MessageId> {
    let age_of = move |at: Timestamp| pool.age(now, at);
    let excess = list.len().saturating_sub(keep);
    let old = move |over: &&Over| age_of(over.at) > age;
    let named = move |over: &Over| age_of(over.created_at()) <= KEEP_NAMED && pool.book.is_named(over.id());
    let by_number = list.values().take(excess);
    let by_age = list.values().skip(excess).take_while(old).filter(move |over| !named(over));
    by_number.chain(by_age).map(Over::id)
}
