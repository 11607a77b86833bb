//! Agents at their usage limit: their slots, and what tells them to go on.

use std::time::Duration;

use pool::{QueueRules, agent, queue, slots};
use protocol::session::Conversation;
use protocol::{Event, Lifecycle, MessageState, MessageStatus, OpId, Reason, Timestamp};

use super::{Engine, MINUTE, ONE};
use crate::queue::{asked, send, send_prompt};

fn talk(begun: bool) -> Option<Conversation> {
    Some(Conversation { id: "talk".to_owned(), begun })
}

/// A worker claims a message of the session.
fn claim_other(engine: &mut Engine) {
    let (op, asked) = (OpId::Random([9; 16]), asked(ONE, "summarize"));
    let id = send(&mut engine.world, &QueueRules::default(), &asked, &op).unwrap();
    let open = engine.world.pool.pending_message(ONE, id).unwrap();
    let claimed = queue::transition(&open, MessageState::Claimed, None, engine.now());
    engine.world.emit(claimed);
}

#[test]
fn c11_at_its_usage_limit_a_session_gives_its_slot_up_only_where_nothing_is_lost() {
    type Change = fn(&mut Engine);
    let changes: [(&str, bool, Change); 10] = [
        ("nothing stands against it", true, |_| ()),
        ("a prompt waits for it", true, |engine| assert!(send_prompt(&mut engine.world, ONE).is_ok())),
        ("it is pinned", false, |engine| engine.change(ONE, |s| s.policy.pinned = true)),
        ("a user holds its lock", false, |engine| engine.lock(ONE, &[])),
        ("a client is attached", false, |engine| engine.change(ONE, |s| s.attached_clients = 1)),
        ("only a person spoke to it", false, |engine| engine.change(ONE, |s| s.conversation = talk(false))),
        ("it has no conversation", false, |engine| engine.change(ONE, |s| s.conversation = None)),
        ("it cannot resume", false, |engine| engine.change(ONE, |s| s.spec.resume_args.clear())),
        ("it is being typed into", false, |engine| assert!(engine.volatile.prompts.begin_delivery(ONE))),
        ("a worker has a message of it", false, claim_other),
    ];
    for (why, may_be_parked, change) in changes {
        for (left, is_long) in [(MINUTE - 1, false), (MINUTE, true)] {
            let mut engine = Engine::with_live(1);
            engine.change(ONE, |s| s.conversation = talk(true));
            change(&mut engine);
            let (session, until) = (engine.session(ONE).clone(), Timestamp(engine.world.now + left));
            let (run, _) = engine.turn(|turn, settings| slots::park_limited(turn, settings, &session, until));
            let parks = may_be_parked && is_long;
            assert_eq!(run, parks.then(|| (ONE, engine.tag(ONE))), "{why}, {left} ms left");
            let is_ending = engine.session(ONE).lifecycle == Lifecycle::Draining;
            let is_limited = engine.session(ONE).reason == Some(Reason::Limited);
            assert_eq!((is_ending, is_limited), (parks, parks), "{why}, {left} ms left");
        }
    }
}

#[test]
fn a_late_report_from_before_a_usage_limit_keeps_its_agent_from_nothing() {
    let early = "it finished a turn before the end of its usage limit";
    let due = "it finished a turn after its usage limit, before it was told to";
    for (reported_after, due_after, expected) in [
        (-1000, MINUTE, None),
        (-1, MINUTE, None),
        (-1, 5000, None),
        (0, MINUTE, Some(early)),
        (5000, MINUTE, Some(early)),
        (5000, 10_000, Some(due)),
    ] {
        let mut engine = Engine::with_live(1);
        let id = send_prompt(&mut engine.world, ONE).unwrap();
        let met_at = engine.now();
        let not_before = Some(met_at.after(Duration::from_millis(due_after)));
        let status = Box::new(MessageStatus { not_before, changed_at: met_at, ..MessageStatus::default() });
        engine.world.emit(Event::MessageChanged { id, session: ONE, status });
        engine.pass(10_000);
        let (pool, now) = (&engine.world.pool, engine.now());
        let moment = pool.moment(now, Timestamp(met_at.0.saturating_add_signed(reported_after)));
        let open = pool.pending_message(ONE, id).unwrap();
        let told = agent::cancel_continue(pool, &open, (moment, now)).map(|event| {
            let Event::MessageChanged { status, .. } = event else { panic!("{event:?}") };
            (status.state, status.reason.unwrap().to_string())
        });
        let expected = expected.map(|why| (MessageState::Cancelled, why.to_owned()));
        assert_eq!(told, expected, "reported after {reported_after}, due after {due_after}");
    }
}
