//! The circuit breaker of a kind of messages: a kind that fails several times in a row is held back, except
//! for a probe now and then. Durable, so that a restart does not close it; one success closes it.

use protocol::clock::ClockStep;
use protocol::{Breaker, Event, PROMPT, SessionId, Timestamp};

use crate::clock;
use crate::pool::Pool;
use crate::queue::backoff::{PROBE_PAUSE_MAX, doubled};
use crate::queue::pending::PendingMessage;
use crate::settings::QueueRules;

/// Most kinds per session whose failures are counted. Bounds memory: any word is a kind.
const KINDS_MAX: usize = 64;

/// True if the next message of the kind can be attempted. A clock that was set back lets a probe through.
pub(crate) fn lets_through(breaker: &Breaker, now: Timestamp) -> bool {
    match (breaker.opened_at, breaker.probe_at) {
        (None, _) => true,
        (Some(_), Some(probe)) => probe <= now || probe.since(now) > PROBE_PAUSE_MAX,
        (Some(_), None) => true,
    }
}

/// Counts a failed attempt; the breaker opens, or stays open for longer, after `breaker_failures` of them in
/// a row.
pub(crate) fn count_failure(
    pool: &Pool,
    rules: &QueueRules,
    (session, kind): (SessionId, &str),
    now: Timestamp,
    reason: &str,
) -> Vec<Event> {
    if rules.breaker_failures == 0 {
        return Vec::new();
    }
    let evicted = evict_kind(pool, session, kind);
    let before = pool.breaker(session, kind).cloned().unwrap_or_default();
    let failures = before.failures.saturating_add(1);
    let opens = failures >= rules.breaker_failures;
    let breaker = Breaker {
        failures,
        opened_at: before.opened_at.or(opens.then_some(now)),
        probe_at: opens.then(|| next_probe(rules, failures, now)),
        reason: Some(reason.to_owned()),
    };
    let counted = breaker_changed(session, kind, breaker, opens && !before.is_open());
    evicted.into_iter().chain([counted]).collect()
}

/// Forgets the failures of another kind if those of this kind would exceed [`KINDS_MAX`]: of a kind that is not held
/// back, or else of the kind whose probe has been due for longest, because probably nothing of that kind is sent any
/// more.
fn evict_kind(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    let others = || pool.breakers_of(session);
    if pool.breaker(session, kind).is_some() || others().count() < KINDS_MAX {
        return None;
    }
    let first = others().filter(|(other, _)| *other != PROMPT);
    let (other, breaker) = first.min_by_key(|(_, breaker)| (breaker.is_open(), breaker.probe_at))?;
    Some(breaker_changed(session, other, Breaker::default(), breaker.is_open()))
}

/// Closes the breaker of a kind if it is open, because its probe did not fail. If it is not open, the failures so far
/// still count.
pub(crate) fn close_open(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    pool.breaker(session, kind).filter(|breaker| breaker.is_open())?;
    close(pool, session, kind)
}

/// Puts off the next probe of a kind that is held back: the last one showed neither a failure nor a success.
pub(crate) fn put_off(
    pool: &Pool,
    rules: &QueueRules,
    (session, kind): (SessionId, &str),
    now: Timestamp,
) -> Option<Event> {
    let before = pool.breaker(session, kind).filter(|breaker| breaker.is_open())?;
    let probe_at = Some(next_probe(rules, before.failures, now));
    Some(breaker_changed(session, kind, Breaker { probe_at, ..before.clone() }, false))
}

/// Moves the probes by a step of the clock, so that their pauses keep their length.
pub(crate) fn shift_probes(pool: &Pool, step: ClockStep) -> Vec<Event> {
    let shifted = |(session, kind, breaker): (SessionId, &str, &Breaker)| {
        let probe_at = Some(clock::shifted(step, breaker.probe_at?));
        Some(breaker_changed(session, kind, Breaker { probe_at, ..breaker.clone() }, false))
    };
    pool.breakers().filter_map(shifted).collect()
}

/// Applies rules that may have changed: closes all breakers if none are wanted, and advances the probes that are
/// further away than the rules' pause.
#[must_use]
pub fn apply_rules(pool: &Pool, rules: &QueueRules, now: Timestamp) -> Vec<Event> {
    let changed = |(session, kind, breaker): (SessionId, &str, &Breaker)| {
        if rules.breaker_failures == 0 {
            return close(pool, session, kind);
        }
        let latest = next_probe(rules, breaker.failures, now);
        let probe_at = Some(latest).filter(|latest| breaker.probe_at.is_some_and(|at| at > *latest));
        probe_at.map(|_| breaker_changed(session, kind, Breaker { probe_at, ..breaker.clone() }, false))
    };
    pool.breakers().filter_map(changed).collect()
}

fn next_probe(rules: &QueueRules, failures: u32, now: Timestamp) -> Timestamp {
    let times = failures.saturating_sub(rules.breaker_failures);
    now.after(doubled(rules.breaker_pause, times, PROBE_PAUSE_MAX))
}

/// Closes the breaker: an attempt did not fail, or a user wants the kind to be tried at once.
pub(crate) fn close(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    let before = pool.breaker(session, kind)?;
    Some(breaker_changed(session, kind, Breaker::default(), before.is_open()))
}

/// Returns the event that a message did not fail, and closes the breaker of its kind.
pub(crate) fn with_close(pool: &Pool, message: &PendingMessage<'_>, event: Event) -> Vec<Event> {
    [event].into_iter().chain(close(pool, message.session, message.kind)).collect()
}

fn breaker_changed(session: SessionId, kind: &str, breaker: Breaker, turned: bool) -> Event {
    Event::BreakerChanged { session, kind: kind.to_owned(), breaker, turned }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::{Seq, Stamped};

    use super::*;

    #[test]
    fn a_clock_that_is_set_neither_ends_nor_lengthens_the_pause_of_a_probe() {
        let mut pool = Pool::default();
        let open =
            |probe_at| Breaker { failures: 9, probe_at: Some(Timestamp(probe_at)), ..Breaker::default() };
        let event = breaker_changed(SessionId(1), "a", open(10_000), false);
        pool.apply(&Stamped { seq: Seq(1), at: Timestamp(1), event });
        for (before, after, probe_at) in [(9_000, 90_000, 91_000), (9_000, 1_000, 2_000)] {
            let step = ClockStep::new(Timestamp(before), Timestamp(after));
            let shifted = breaker_changed(SessionId(1), "a", open(probe_at), false);
            assert_eq!(shift_probes(&pool, step), [shifted]);
        }
        let none_wanted = QueueRules { breaker_failures: 0, ..QueueRules::default() };
        let closed = breaker_changed(SessionId(1), "a", Breaker::default(), false);
        assert_eq!(apply_rules(&pool, &none_wanted, Timestamp(1)), [closed]);
        let rules = QueueRules { breaker_failures: 9, ..QueueRules::default() };
        assert_eq!(apply_rules(&pool, &rules, Timestamp(1)), []);
        let shorter = QueueRules { breaker_pause: Duration::from_millis(50), ..rules };
        let advanced = breaker_changed(SessionId(1), "a", open(51), false);
        assert_eq!(apply_rules(&pool, &shorter, Timestamp(1)), [advanced]);
        assert_eq!(apply_rules(&pool, &shorter, Timestamp(9_990)), [], "it is due before");
    }

    #[test]
    fn of_many_kinds_those_that_only_begin_to_fail_are_forgotten_first() {
        let (mut pool, rules) =
            (Pool::default(), QueueRules { breaker_failures: 2, ..QueueRules::default() });
        let fail = |pool: &mut Pool, kind: &str| {
            for event in count_failure(pool, &rules, (SessionId(1), kind), Timestamp(1), "why") {
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
