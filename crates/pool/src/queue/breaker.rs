//! A kind of messages that fails several times in a row is held back, but for a probe now and then.
//! Durable, so that a restart does not begin it anew; one success closes it.

use protocol::message::PROMPT;
use protocol::{Breaker, Event, SessionId, Timestamp};

use super::{PROBE_PAUSE_MAX, Rules, doubled};
use crate::pool::Pool;

/// Kinds of a session whose failures are counted: any word is a kind.
const KINDS_MAX: usize = 64;

/// Whether the next message may be given out. A clock that went back lets a probe through.
pub(super) fn lets_through(breaker: &Breaker, now: Timestamp) -> bool {
    match (breaker.opened_at, breaker.probe_at) {
        (None, _) => true,
        (Some(_), Some(probe)) => probe <= now || probe.since(now) > PROBE_PAUSE_MAX,
        (Some(_), None) => true,
    }
}

/// An attempt failed.
pub(super) fn failed(
    pool: &Pool,
    rules: &Rules,
    (session, kind): (SessionId, &str),
    now: Timestamp,
    reason: &str,
) -> Vec<Event> {
    if rules.breaker_failures == 0 {
        return Vec::new();
    }
    let room = room(pool, session, kind);
    let before = pool.breaker(session, kind).cloned().unwrap_or_default();
    let failures = before.failures.saturating_add(1);
    let opens = failures >= rules.breaker_failures;
    let times = failures.saturating_sub(rules.breaker_failures);
    let pause = doubled(rules.breaker_pause, times, PROBE_PAUSE_MAX);
    let breaker = Breaker {
        failures,
        opened_at: before.opened_at.or(opens.then_some(now)),
        probe_at: opens.then(|| now.after(pause)),
        reason: Some(reason.to_owned()),
    };
    let counted = changed(session, kind, breaker, opens && !before.is_open());
    room.into_iter().chain([counted]).collect()
}

/// Forgets a kind, where there is no room to count the failures of this one: a kind that is not held back; else the one
/// whose probe was due first, as nobody may send it any more.
fn room(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    let others = || pool.breakers_of(session);
    if pool.breaker(session, kind).is_some() || others().count() < KINDS_MAX {
        return None;
    }
    let first = others().filter(|(other, _)| *other != PROMPT);
    let (other, breaker) = first.min_by_key(|(_, breaker)| (breaker.is_open(), breaker.probe_at))?;
    Some(changed(session, other, Breaker::default(), breaker.is_open()))
}

/// An attempt did not fail, or a user wants the kind tried at once.
pub(super) fn closed(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    let before = pool.breaker(session, kind)?;
    Some(changed(session, kind, Breaker::default(), before.is_open()))
}

fn changed(session: SessionId, kind: &str, breaker: Breaker, turned: bool) -> Event {
    Event::BreakerChanged { session, kind: kind.to_owned(), breaker, turned }
}

#[cfg(test)]
mod tests {
    use protocol::{Seq, Stamped};

    use super::*;

    #[test]
    fn of_many_kinds_those_that_only_begin_to_fail_are_forgotten_first() {
        let (mut pool, rules) = (Pool::default(), Rules { breaker_failures: 2, ..Rules::default() });
        let fail = |pool: &mut Pool, kind: &str| {
            for event in failed(pool, &rules, (SessionId(1), kind), Timestamp(1), "why") {
                pool.apply(&Stamped { seq: Seq(1), at: Timestamp(1), event });
            }
        };
        (0..2).for_each(|_| fail(&mut pool, "held"));
        (0..500).for_each(|n| fail(&mut pool, &format!("kind{n}")));
        assert_eq!(pool.breakers().count(), KINDS_MAX);
        assert!(pool.breaker(SessionId(1), "held").is_some_and(Breaker::is_open));
        assert!(pool.breaker(SessionId(1), "kind499").is_some(), "the newest is counted");
        (0..KINDS_MAX).for_each(|n| (0..2).for_each(|_| fail(&mut pool, &format!("open{n}"))));
        fail(&mut pool, "one more");
        assert_eq!(pool.breakers().count(), KINDS_MAX);
        assert!(pool.breaker(SessionId(1), "one more").is_some(), "any kind can be held back");
    }
}
