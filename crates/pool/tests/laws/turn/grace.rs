//! The time between TERM and KILL that users ask for.

use pool::deadlines::Mono;
use pool::reap;
use protocol::{Lifecycle, Reason};

use super::{Engine, ONE};

/// The configured time, in milliseconds.
const USUAL: u64 = 25_000;
const HOUR: u64 = 3_600_000;

impl Engine {
    /// A user asks for the end of the session, with this grace or none. Returns the one on record.
    fn ask(&mut self, grace: Option<u64>) -> Option<u64> {
        let tag = self.tag(ONE);
        self.turn(|turn, _| reap::ask_grace(turn, tag, (grace, USUAL)));
        self.session(ONE).end_grace_ms
    }
}

#[test]
fn an_end_that_no_reaper_has_begun_is_only_shortened() {
    let mut engine = Engine::with_live(1);
    assert_eq!(engine.ask(None), None, "the configured one");
    assert_eq!(engine.ask(Some(HOUR)), Some(HOUR));
    assert_eq!(engine.ask(Some(2 * HOUR)), Some(HOUR));
    assert_eq!(engine.ask(None), Some(USUAL), "whoever asks without one wants the usual one");
    assert_eq!(engine.ask(Some(HOUR)), Some(USUAL));
    assert_eq!(engine.ask(Some(0)), Some(0));
}

#[test]
fn an_end_with_the_usual_grace_is_not_prolonged_either() {
    for (reason, expected) in [(Reason::Killed, None), (Reason::Evicted, None), (Reason::Drained, Some(HOUR))]
    {
        let mut engine = Engine::with_live(1);
        engine.is(ONE, Lifecycle::Draining, reason);
        assert_eq!(engine.ask(Some(HOUR)), expected, "{reason:?}");
        assert_eq!(engine.ask(Some(1)), Some(1), "{reason:?}");
    }
}

#[test]
fn an_end_that_a_reaper_is_at_is_only_shortened() {
    let mut engine = Engine::with_live(1);
    assert_eq!(engine.ask(Some(HOUR)), Some(HOUR));
    let (tag, now) = (engine.tag(ONE), engine.world.now);
    engine.volatile.reaping.lease(tag, 1, (HOUR, Mono(now)));
    engine.pass(60_000);
    assert_eq!(engine.ask(Some(2 * HOUR)), Some(HOUR));
    assert_eq!(engine.ask(None), Some(USUAL));
    assert_eq!(engine.ask(Some(USUAL)), Some(USUAL));
    assert_eq!(engine.volatile.reaping.leased_grace(tag), Some(60_000 + USUAL));
}
