//! The consequences of events for tasks that wait.

use std::time::Duration;

use pool::clock::Reading;
use pool::deadlines::Mono;
use pool::{QueueRules, Turn, WaitsFor, prompt};
use protocol::clock::Clock;
use protocol::{Breaker, Event, Message, MessageId, MessageStatus, OpId, PROMPT, Timestamp};

use super::{Engine, ONE};
use crate::queue::{asked, send, send_prompt};
use crate::world::session_lock;

const WORK: &str = "observation";

#[test]
fn what_ends_pauses_or_expires_is_waited_for_until_that_time_and_not_until_the_next_look() {
    let mut engine = Engine::with_live(1);
    let (op, asked) = (OpId::Random([9; 16]), asked(ONE, WORK));
    let id = send(&mut engine.world, &QueueRules::default(), &asked, &op).unwrap();
    let sent = engine.world.disk.messages[&id].0.clone();
    let (now, later) = (engine.now(), Some(engine.now().after(Duration::from_millis(100))));
    let queued = |n, kind: &str, expires_at: Option<Timestamp>| {
        let (id, kind) = (MessageId(n), kind.to_owned());
        Event::MessageQueued(Box::new(Message { id, kind, op: None, expires_at, ..sent.clone() }))
    };
    let changed = |n, not_before| {
        let status = Box::new(MessageStatus { not_before, changed_at: now, ..MessageStatus::default() });
        Event::MessageChanged { id: MessageId(n), session: ONE, status }
    };
    let breaker = |opened_at| {
        let (kind, breaker) = (WORK.to_owned(), Breaker { failures: 1, opened_at, ..Breaker::default() });
        Event::BreakerChanged { session: ONE, kind, breaker, turned: true }
    };
    let lock = session_lock(1, now);
    let released = Event::LockReleased { session: ONE, token: lock.token, reason: "why".to_owned() };
    for (event, expected) in [
        (queued(801, PROMPT, None), (true, false)),
        (queued(802, PROMPT, later), (true, true)),
        (queued(803, WORK, None), (false, false)),
        (queued(804, WORK, later), (false, true)),
        (changed(801, None), (true, false)),
        (changed(802, later), (true, true)),
        (changed(803, None), (false, false)),
        (changed(804, later), (false, true)),
        (breaker(None), (false, false)),
        (breaker(Some(now)), (false, true)),
        (Event::LockGranted { session: ONE, lock }, (true, true)),
        (released, (true, false)),
        (Event::KeysPressed(ONE), (true, false)),
        (Event::ClockRead(Clock::default()), (false, false)),
    ] {
        let what = format!("{event:?}");
        let reading = Reading { wall: now, awake_ms: now.0 };
        let mut turn = Turn::new(&mut engine.world.pool, &mut engine.volatile, reading, Mono(now.0));
        turn.emit(event);
        let output = turn.finish();
        assert_eq!((output.is_woken, output.has_deadline), expected, "{what}");
    }
}

#[test]
fn who_waits_for_a_prompt_is_told_that_only_a_person_can_move_it_on() {
    let mut engine = Engine::with_live(1);
    let id = send_prompt(&mut engine.world, ONE).unwrap();
    let (changes, _) = engine.turn(|turn, _| {
        prompt::leave_to_person(turn, ONE, id);
        turn.take_changes()
    });
    assert!(changes.concern(WaitsFor::Session(ONE)));
    assert_eq!(engine.volatile.prompts.left_to_person(ONE), Some(id));
}
