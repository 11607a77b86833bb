//! A kind of messages that fails several times in a row is held back, but for a probe now and then.
//! Durable, so that a restart does not begin it anew; one success closes it.

use protocol::{Breaker, Event, SessionId, Timestamp};

use super::{PROBE_PAUSE_MAX, Rules, doubled};
use crate::pool::Pool;

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
) -> Option<Event> {
    if rules.breaker_failures == 0 {
        return None;
    }
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
    Some(changed(session, kind, breaker, opens && !before.is_open()))
}

/// An attempt did not fail, or a user wants the kind tried at once.
pub(super) fn closed(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    let before = pool.breaker(session, kind)?;
    Some(changed(session, kind, Breaker::default(), before.is_open()))
}

fn changed(session: SessionId, kind: &str, breaker: Breaker, turned: bool) -> Event {
    Event::BreakerChanged { session, kind: kind.to_owned(), breaker, turned }
}
