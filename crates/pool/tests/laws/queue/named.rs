//! The invariants of queues, one by one. The machine compares all of them with the reference after each step.

use std::time::Duration;

use pool::lock::LockTable;
use pool::queue::{ArchivedMessages, Body, ClaimQuery, EarlierMessages, SendInputs};
use pool::{QueueRules, queue, reap};
use protocol::message::{BODY_MAX, HOPS_MAX, KEY_MAX, KIND_MAX, REASON_MAX, RESULT_MAX};
use protocol::policy::{Policy, RestartPolicy};
use protocol::reap::CandidateKind;
use protocol::request::{ClaimRef, Disposition, Send};
use protocol::tmux::TmuxState;
use protocol::{
    Epoch, ErrorCode, Event, Holder, MessageId, MessageReason, MessageState, MessageStatus, OpId, OsBytes,
    PROMPT, Reason, Seq, SessionId, Tag, Timestamp, Token,
};

use super::command::{Command, Moves, Op, Sending};
use super::machine::{Machine, tight};
use super::{asked, send};
use crate::world::{World, process, server, settings};

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const WORK: &str = "observation";
const SECOND: u64 = 1000;
const DAY: i64 = 24 * 3600 * 1000;

const PLAIN: Sending = Sending {
    session: ONE,
    kind: WORK,
    priority: 0,
    size: 1,
    key: None,
    op: Op::Fresh,
    ttl_ms: None,
    cause: None,
};

fn machine() -> Machine {
    Machine::new(tight())
}

fn claim(machine: &mut Machine) -> Option<ClaimRef> {
    let held = machine.claim(ONE, &[], 1, None);
    held.first().copied()
}

fn state(machine: &Machine, id: MessageId) -> MessageState {
    machine.world.pool.find_message(id).unwrap().1
}

#[test]
fn q01_a_message_has_one_live_claim_and_its_tokens_grow_over_a_crash() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    machine.send(&PLAIN).unwrap();
    let first = claim(&mut machine).unwrap();
    assert_eq!(claim(&mut machine), None, "one is in flight");
    machine.run(&[Command::Crash]);
    assert_eq!(claim(&mut machine), None, "the claim outlives the daemon");
    machine.run(&[Command::Pass(61 * SECOND), Command::Pass(SECOND)]);
    let second = claim(&mut machine).unwrap();
    assert_eq!((first.id, second.id), (id, id));
    assert!(second.token > first.token);
    assert!(machine.world.pool.find_pending(id).is_some_and(|open| open.token == Some(second.token)));
}

#[test]
fn q02_a_token_that_is_not_the_current_one_changes_nothing() {
    let mut machine = machine();
    machine.send(&PLAIN).unwrap();
    let stale = claim(&mut machine).unwrap();
    machine.run(&[Command::Pass(61 * SECOND), Command::Pass(SECOND)]);
    let current = claim(&mut machine).unwrap();
    let foreign = ClaimRef { id: current.id, token: Token { epoch: Epoch(9), n: 9 } };
    let other = ClaimRef { id: MessageId(999), token: current.token };
    let (pool, rules, now) = (&machine.world.pool, &machine.rules, machine.now());
    for held in [stale, foreign, other] {
        assert_eq!(queue::ack(pool, held, None, now).unwrap_err().code, ErrorCode::Conflict);
        for then in [Disposition::Retry, Disposition::Later(None), Disposition::Dead, Disposition::GiveBack] {
            let refused = queue::fail(pool, rules, held, ("why", then), now).unwrap_err();
            assert_eq!(refused.code, ErrorCode::Conflict);
        }
    }
    assert!(queue::ack(pool, current, None, now).is_ok());
}

#[test]
fn q03_every_message_ends_and_attempts_are_counted_with_the_claim() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    for attempt in 1..=machine.rules.max_attempts {
        claim(&mut machine).unwrap();
        assert_eq!(machine.world.pool.find_pending(id).unwrap().attempts, attempt);
        machine.run(&[Command::Crash, Command::Pass(61 * SECOND), Command::Pass(61 * SECOND)]);
    }
    assert_eq!(state(&machine, id), MessageState::Dead);
    let reason = machine.world.disk.messages[&id].1.as_ref().unwrap().reason.clone().unwrap();
    assert_eq!(reason.to_string(), "3 of 3 attempts: silent");
    assert_eq!(claim(&mut machine), None);
    machine.run(&[Command::Cancel(0), Command::Resolve(0, protocol::request::Resolution::Done)]);
    assert_eq!(state(&machine, id), MessageState::Dead, "what is over stays so");
    machine.run(&[Command::Retry(0)]);
    assert_eq!(claim(&mut machine).map(|held| held.id), Some(id), "unless a user wants it again");
}

#[test]
fn q03_what_was_not_begun_is_no_attempt() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    for _ in 0..9 {
        claim(&mut machine).unwrap();
        machine.run(&[Command::Fail(0, Disposition::GiveBack)]);
    }
    assert_eq!(machine.world.pool.find_pending(id).unwrap().attempts, 0);
}

#[test]
fn q04_order_and_priority_hold_and_a_redelivery_keeps_its_place() {
    let mut machine = machine();
    let low = machine.send(&Sending { priority: -1, ..PLAIN }).unwrap();
    let first = machine.send(&PLAIN).unwrap();
    let second = machine.send(&PLAIN).unwrap();
    let high = machine.send(&Sending { priority: 9, ..PLAIN }).unwrap();
    let other = machine.send(&Sending { kind: "summarize", ..PLAIN }).unwrap();
    let mut order = Vec::new();
    while let Some(held) = machine.claim(ONE, &[WORK.to_owned()], 1, None).first().copied() {
        if held.id == first && !order.contains(&first) {
            machine.run(&[Command::Fail(0, Disposition::Later(Some(0)))]);
        } else {
            machine.run(&[Command::Ack(0)]);
        }
        order.push(held.id);
    }
    assert_eq!(order, [high, first, first, second, low]);
    let two = machine.send(&PLAIN).unwrap();
    let merged: Vec<_> = machine.claim(ONE, &[], 64, None).iter().map(|held| held.id).collect();
    assert_eq!(merged, [other, two], "of several kinds in the order in which they were queued");
}

#[test]
fn q05_a_repeated_ack_is_known_by_its_row() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    let held = claim(&mut machine).unwrap();
    let result = Some(OsBytes(b"done".to_vec()));
    let events = queue::ack(&machine.world.pool, held, result.clone(), machine.now()).unwrap();
    machine.world.emit_all(events);
    let row = machine.world.disk.messages[&id].1.clone().unwrap();
    assert_eq!((row.state, row.token, row.result), (MessageState::Done, Some(held.token), result));
    let again = queue::ack(&machine.world.pool, held, None, machine.now());
    assert_eq!(again.unwrap_err().code, ErrorCode::Conflict, "and has no further effect");
}

#[test]
fn q06_what_was_being_typed_in_a_crash_is_in_doubt_and_never_typed_again_by_itself() {
    let mut machine = machine();
    let id = machine.send(&Sending { kind: PROMPT, ..PLAIN }).unwrap();
    let next = machine.send(&Sending { kind: PROMPT, ..PLAIN }).unwrap();
    machine.run(&[Command::Type(ONE), Command::Crash]);
    assert_eq!(state(&machine, id), MessageState::InDoubt);
    machine.run(&[Command::Pass(7200 * SECOND), Command::Crash, Command::Type(ONE)]);
    assert_eq!(state(&machine, next), MessageState::Queued, "it holds its kind");
    machine.run(&[Command::Resolve(0, protocol::request::Resolution::Done), Command::Type(ONE)]);
    assert_eq!(state(&machine, next), MessageState::Typing);
    machine.run(&[Command::Prompt(0, Moves::On), Command::Crash]);
    assert_eq!(state(&machine, next), MessageState::Typed, "it was typed for certain");
}

#[test]
fn q08_a_full_queue_refuses_and_evicts_nothing() {
    let mut machine = machine();
    for _ in 0..6 {
        machine.send(&PLAIN).unwrap();
    }
    assert_eq!(machine.send(&PLAIN), Err(ErrorCode::Refused), "messages of a session");
    assert_eq!(machine.world.pool.queue_size(ONE), (6, 6));
    machine.send(&Sending { session: TWO, size: 199, ..PLAIN }).unwrap();
    assert_eq!(
        machine.send(&Sending { session: TWO, size: 2, ..PLAIN }),
        Err(ErrorCode::Refused),
        "its bytes"
    );
    machine.send(&Sending { session: TWO, ..PLAIN }).unwrap();
    machine.run(&[Command::Cancel(7)]);
    claim(&mut machine).unwrap();
    assert_eq!(machine.send(&PLAIN), Err(ErrorCode::Refused), "what is in flight takes its room");
    machine.run(&[Command::Ack(0), Command::Crash]);
    machine.send(&PLAIN).unwrap();
}

#[test]
fn q08_the_pool_as_a_whole_has_its_limits() {
    let many = QueueRules { pool_max_messages: 3, ..QueueRules::default() };
    let large = QueueRules { pool_max_bytes: 3, ..QueueRules::default() };
    for rules in [many, large] {
        let mut machine = Machine::new(rules);
        for _ in 0..3 {
            machine.send(&PLAIN).unwrap();
        }
        assert_eq!(machine.send(&Sending { session: TWO, ..PLAIN }), Err(ErrorCode::Refused));
    }
}

#[test]
fn q08_a_message_that_fits_no_queue_is_told_with_its_size_and_the_limit() {
    let mut machine = machine();
    machine.send(&PLAIN).unwrap();
    let world = &machine.world;
    let session = world.pool.session(ONE).unwrap().clone();
    let send = asked(ONE, WORK);
    let body = Body { bytes: vec![b'x'; 9], digest: 1 };
    let sending = SendInputs { session: &session, send: &send, body: &body, op: &OpId::Random([9; 16]) };
    let told = |rules: &QueueRules| {
        let place = (Seq(world.pool.seq().0 + 1), Timestamp(world.now));
        let refused = queue::send(&world.pool, rules, sending, EarlierMessages::default(), place);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Refused);
        refused.message
    };
    let of_session = told(&QueueRules { max_bytes: 8, ..QueueRules::default() });
    assert!(of_session.starts_with("the message has 9 bytes, and [queue] max_bytes is 8:"), "{of_session}");
    let of_pool = told(&QueueRules { pool_max_bytes: 8, ..QueueRules::default() });
    assert!(of_pool.starts_with("the message has 9 bytes, and [queue] pool_max_bytes is 8:"), "{of_pool}");
    let full = told(&QueueRules { max_bytes: 9, ..QueueRules::default() });
    assert!(full.contains(" is full: 1 message, 1 bytes"), "{full}");
}

#[test]
fn d02_o01_the_same_key_or_operation_is_the_same_message() {
    let mut machine = machine();
    let keyed = Sending { key: Some(1), ..PLAIN };
    let named = Sending { op: Op::Named(1), ..PLAIN };
    let (by_key, by_op) = (machine.send(&keyed).unwrap(), machine.send(&named).unwrap());
    for _ in 0..2 {
        assert_eq!(machine.send(&keyed), Ok(by_key));
        assert_eq!(machine.send(&named), Ok(by_op));
        assert_eq!(machine.send(&Sending { size: 2, ..keyed.clone() }), Err(ErrorCode::Conflict));
        assert_eq!(machine.send(&Sending { kind: PROMPT, ..keyed.clone() }), Err(ErrorCode::Conflict));
        machine.run(&[Command::AgeOperations, Command::AgeOperations, Command::Crash]);
    }
    let elsewhere = machine.send(&Sending { session: TWO, ..keyed.clone() }).unwrap();
    assert_ne!(elsewhere, by_key, "a key is a session's");
    machine.run(&[Command::Cancel(0)]);
    assert_eq!(machine.send(&keyed), Ok(by_key), "over, and still known");
}

#[test]
fn o01_a_random_operation_is_known_for_two_ages_and_after_a_crash() {
    let mut machine = machine();
    let again = Sending { op: Op::Again(0), ..PLAIN };
    let id = machine.send(&PLAIN).unwrap();
    machine.run(&[Command::AgeOperations]);
    assert_eq!(machine.send(&again), Ok(id));
    machine.run(&[Command::Crash]);
    assert_eq!(machine.send(&again), Ok(id));
    machine.run(&[Command::AgeOperations, Command::AgeOperations]);
    assert!(machine.send(&again).is_ok_and(|new| new > id), "its time is over");
}

#[test]
fn l02_tokens_grow_over_a_restart() {
    let (mut before, mut after) = (LockTable::new(Epoch(4)), LockTable::new(Epoch(5)));
    let last = (0..1000).map(|_| before.issue_token()).last().unwrap();
    assert!(after.issue_token() > last);
}

#[test]
fn l03_no_jump_of_the_clock_ends_a_lease_and_a_restart_begins_it_anew() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    claim(&mut machine).unwrap();
    machine.run(&[Command::Pass(59 * SECOND), Command::Jump(DAY), Command::Jump(-DAY), Command::Jump(-DAY)]);
    assert_eq!(state(&machine, id), MessageState::Claimed);
    machine.run(&[
        Command::Crash,
        Command::Pass(59 * SECOND),
        Command::Heartbeat(0),
        Command::Pass(59 * SECOND),
    ]);
    assert_eq!(state(&machine, id), MessageState::Claimed);
    machine.run(&[Command::Pass(SECOND)]);
    assert_eq!(state(&machine, id), MessageState::Queued);
    machine.run(&[Command::Jump(-DAY)]);
    assert_eq!(claim(&mut machine).map(|held| held.id), Some(id), "nor does one make it wait for a day");
}

#[test]
fn l04_what_is_taken_from_a_worker_that_lives_waits_for_its_end() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    let held = machine.claim(ONE, &[], 1, Some(process(1000)))[0];
    machine.run(&[Command::Pass(61 * SECOND), Command::Crash, Command::Pass(600 * SECOND)]);
    assert_eq!(state(&machine, id), MessageState::Revoking);
    assert_eq!(claim(&mut machine), None);
    let open = machine.world.pool.find_pending(id).unwrap();
    assert!(open.token > Some(held.token), "fenced first");
    let (state_of_tmux, exited) = (TmuxState::default(), std::collections::BTreeSet::new());
    let (now, listed_from) = (machine.now(), None);
    let inputs = reap::ReapInputs {
        state: &state_of_tmux,
        exited: &exited,
        now,
        listed_from,
        grace_ms: 1,
        drained: &[].into(),
        orphans: &reap::Orphans::default(),
    };
    let found = crate::world::candidates(&machine.world.pool, &settings(), &inputs);
    let found: Vec<_> = found.iter().map(|c| (c.kind, c.init, c.tag)).collect();
    let tag = Tag::for_claim(open.token.unwrap());
    assert_eq!(found, [(CandidateKind::StaleWorker, Some(process(1000)), tag)]);
    machine.run(&[Command::WorkerDies(0), Command::Pass(SECOND)]);
    assert_eq!(claim(&mut machine).map(|held| held.id), Some(id));
}

#[test]
fn l05_a_holder_that_slept_past_its_lease_can_do_nothing() {
    let mut machine = machine();
    let id = machine.send(&PLAIN).unwrap();
    machine.claim(ONE, &[], 1, Some(process(1000)));
    let asleep = [
        Command::Pass(61 * SECOND),
        Command::Ack(0),
        Command::Fail(0, Disposition::Dead),
        Command::Heartbeat(0),
    ];
    machine.run(&asleep);
    assert_eq!(state(&machine, id), MessageState::Revoking);
}

#[test]
fn l06_proven_death_frees_at_once() {
    let mut machine = machine();
    let (id, other) =
        (machine.send(&PLAIN).unwrap(), machine.send(&Sending { session: TWO, ..PLAIN }).unwrap());
    machine.claim(ONE, &[], 1, Some(process(1000)));
    machine.claim(TWO, &[], 1, Some(process(2000)));
    machine.run(&[Command::WorkerDies(0)]);
    assert_eq!((state(&machine, id), state(&machine, other)), (MessageState::Queued, MessageState::Claimed));
}

#[test]
fn a_kind_that_fails_in_a_row_is_held_back_but_for_one_probe_at_a_time() {
    let mut machine = Machine::new(QueueRules { max_attempts: 1, ..tight() });
    let fails = |machine: &mut Machine| {
        assert!(claim(machine).is_some());
        machine.run(&[Command::Fail(0, Disposition::Retry)]);
    };
    for _ in 0..6 {
        machine.send(&PLAIN).unwrap();
    }
    machine.send(&Sending { kind: PROMPT, session: TWO, ..PLAIN }).unwrap();
    fails(&mut machine);
    assert!(!machine.world.pool.breaker(ONE, WORK).unwrap().is_open());
    fails(&mut machine);
    assert!(machine.world.pool.breaker(ONE, WORK).unwrap().is_open());
    machine.run(&[Command::Crash, Command::Pass(29 * SECOND)]);
    assert_eq!(claim(&mut machine), None, "held back, over a crash too");
    machine.run(&[Command::Type(TWO)]);
    machine.run(&[Command::Pass(SECOND)]);
    fails(&mut machine);
    machine.run(&[Command::Pass(31 * SECOND)]);
    assert_eq!(claim(&mut machine), None, "the next probe is twice as far away");
    machine.run(&[Command::Pass(31 * SECOND)]);
    assert!(claim(&mut machine).is_some());
    assert_eq!(claim(&mut machine), None, "one probe");
    machine.run(&[Command::Ack(0)]);
    assert_eq!(machine.world.pool.breaker(ONE, WORK), None);
    assert!(claim(&mut machine).is_some());
}

#[test]
fn what_can_never_be_worked_is_dead_at_once_and_no_failure_of_its_kind() {
    let mut machine = machine();
    for _ in 0..3 {
        let id = machine.send(&PLAIN).unwrap();
        assert_eq!(claim(&mut machine).unwrap().id, id);
        machine.run(&[Command::Fail(0, Disposition::Dead)]);
        assert_eq!(state(&machine, id), MessageState::Dead);
    }
    assert_eq!(machine.world.pool.breaker(ONE, WORK), None);
}

#[test]
fn a_success_begins_the_count_of_failures_anew_and_a_retry_closes() {
    let mut machine = machine();
    for then in [Disposition::Later(None), Disposition::GiveBack, Disposition::Dead, Disposition::Retry] {
        machine.send(&PLAIN).unwrap();
        claim(&mut machine).unwrap();
        machine.run(&[Command::Fail(0, then), Command::Pass(5 * SECOND)]);
    }
    claim(&mut machine).unwrap();
    machine.run(&[Command::Ack(0)]);
    for open in [false, true] {
        claim(&mut machine).unwrap();
        machine.run(&[Command::Fail(0, Disposition::Retry), Command::Pass(5 * SECOND)]);
        assert_eq!(machine.world.pool.breaker(ONE, WORK).unwrap().is_open(), open);
    }
    machine.run(&[Command::Retry(2)]);
    assert_eq!(machine.world.pool.breaker(ONE, WORK), None);
    let never = QueueRules { breaker_failures: 0, max_attempts: 99, ..QueueRules::default() };
    let mut machine = Machine::new(never.clone());
    machine.send(&PLAIN).unwrap();
    let held = claim(&mut machine).unwrap();
    let failed =
        queue::fail(&machine.world.pool, &never, held, ("why", Disposition::Retry), machine.now()).unwrap();
    assert_eq!(failed.len(), 1, "no breaker where none is wanted");
}

#[test]
fn retention_forgets_what_is_over_and_keeps_what_is_named_for_a_day() {
    let mut machine = machine();
    let plain = machine.send(&PLAIN).unwrap();
    let keyed = machine.send(&Sending { key: Some(0), ..PLAIN }).unwrap();
    let named = machine.send(&Sending { op: Op::Named(0), ..PLAIN }).unwrap();
    let open = machine.send(&PLAIN).unwrap();
    machine.run(&[Command::Cancel(0), Command::Cancel(1), Command::Cancel(2), Command::Forget]);
    let there = |machine: &Machine| {
        [plain, keyed, named, open].map(|id| machine.world.pool.find_message(id).is_some())
    };
    assert_eq!(there(&machine), [true; 4]);
    machine.run(&[Command::Pass(7200 * SECOND), Command::Forget, Command::Crash]);
    assert_eq!(there(&machine), [false, true, true, true]);
    assert_eq!(machine.send(&Sending { key: Some(0), ..PLAIN }), Ok(keyed));
    machine.run(&[Command::Pass(25 * 3600 * SECOND), Command::Forget]);
    assert_eq!(there(&machine), [false, false, false, true], "never one that is not over");
    assert!(machine.send(&Sending { key: Some(0), ..PLAIN }).is_ok_and(|id| id > open), "its key is free");
}

#[test]
fn retention_keeps_no_more_than_it_is_told_whatever_they_are_called() {
    let mut machine = machine();
    let ids = [0, 1, 2, 3].map(|n| {
        let id = machine.send(&Sending { op: Op::Named(n), ..PLAIN }).unwrap();
        machine.run(&[Command::Cancel(n), Command::Pass(SECOND)]);
        id
    });
    machine.run(&[Command::Forget]);
    assert_eq!(ids.map(|id| machine.world.pool.find_message(id).is_some()), [false, true, true, true]);
}

#[test]
fn retention_keeps_the_newest_also_after_the_clock_was_set_back() {
    let mut machine = machine();
    let mut ended = |n: usize, jump: i64| {
        let id = machine.send(&Sending { op: Op::Named(n), ..PLAIN }).unwrap();
        machine.run(&[Command::Cancel(n), Command::Jump(jump), Command::Pass(SECOND)]);
        id
    };
    let ids = [ended(0, 0), ended(1, 0), ended(2, -DAY), ended(3, 0)];
    for _ in 0..2 {
        machine.run(&[Command::Forget, Command::Crash]);
        assert_eq!(ids.map(|id| machine.world.pool.find_message(id).is_some()), [false, true, true, true]);
    }
}

#[test]
fn the_time_of_a_message_runs_on_where_its_worker_was_stopped() {
    let (mut world, rules, op) = (World::default(), QueueRules::default(), OpId::Named("send".to_owned()));
    let session = world.live("s", server(1), 1);
    let limited = Send { ttl_ms: Some(10 * SECOND), ..asked(session, WORK) };
    let id = send(&mut world, &rules, &limited, &op).unwrap();
    let queued = |reason: MessageReason| {
        let status =
            MessageStatus { changed_at: Timestamp(0), reason: Some(reason), ..MessageStatus::default() };
        Event::MessageChanged { id, session, status: Box::new(status) }
    };
    for (reason, kind, expired) in [
        ("its worker was stopped".into(), "message_released", 1),
        (MessageReason::Retried, "message_retried", 0),
    ] {
        let event = queued(reason);
        assert_eq!(event.kind().as_str(), kind);
        world.emit(event);
        let later = Timestamp(world.now + 11 * SECOND);
        assert_eq!(queue::expired(&world.pool, later).len(), expired, "{kind}");
    }
}

#[test]
fn a_limited_time_runs_while_it_waits_and_not_while_it_is_worked() {
    let mut machine = machine();
    let limited = Sending { ttl_ms: Some(10 * SECOND), ..PLAIN };
    let (first, second) = (machine.send(&limited).unwrap(), machine.send(&limited).unwrap());
    claim(&mut machine).unwrap();
    machine.run(&[Command::Pass(20 * SECOND)]);
    assert_eq!(
        (state(&machine, first), state(&machine, second)),
        (MessageState::Claimed, MessageState::Expired)
    );
    assert_eq!(queue::next_due(&machine.world.pool, machine.now()), None, "nothing to wake for");
    machine.run(&[Command::Retry(1), Command::Pass(SECOND), Command::Ack(0), Command::Crash]);
    assert_eq!(claim(&mut machine).map(|held| held.id), Some(second), "a user gives it another chance");
    machine.run(&[Command::Crash, Command::Fail(0, Disposition::Retry), Command::Pass(1)]);
    assert_eq!(state(&machine, second), MessageState::Expired, "the same with and without a restart");
}

#[test]
fn the_oldest_is_the_oldest_of_every_priority() {
    let mut machine = machine();
    machine.send(&PLAIN).unwrap();
    let queued_at = machine.now();
    machine.run(&[Command::Pass(SECOND)]);
    machine.send(&Sending { priority: 5, ..PLAIN }).unwrap();
    assert_eq!(machine.world.pool.queue_counts(None).oldest_at, Some(queued_at));
}

#[test]
fn a_removed_session_leaves_no_message_and_no_breaker() {
    let mut machine = machine();
    for sending in
        [PLAIN, Sending { key: Some(0), ttl_ms: Some(SECOND), ..PLAIN }, Sending { kind: PROMPT, ..PLAIN }]
    {
        machine.send(&sending).unwrap();
    }
    let kept = machine.send(&Sending { session: TWO, ..PLAIN }).unwrap();
    claim(&mut machine).unwrap();
    machine.run(&[Command::Fail(0, Disposition::Retry), Command::Type(ONE)]);
    let (world, now) = (&mut machine.world, machine.reference.messages[0].created);
    let events = queue::forget_messages(&world.pool, ONE, Timestamp(now));
    world.emit_all(events);
    let mode = protocol::session::DeleteMode::KillTmux;
    world.emit(Event::SessionDeleted { session: ONE, reason: Reason::ApiDelete, mode, tmux_alive: false });
    world.disk.breakers.clear();
    assert_eq!(world.disk.messages.keys().collect::<Vec<_>>(), [&kept]);
    assert_eq!((world.pool.queue_totals(), world.pool.breakers().count()), ((1, 1), 0));
    assert_eq!(
        (world.pool.message_by_key(ONE, "key0"), queue::next_due(&world.pool, Timestamp(0))),
        (None, None)
    );
    assert_eq!(world.rebuilt(), world.pool);
}

/// One live session with the default rules.
struct Desk {
    world: World,
    session: SessionId,
    ops: u8,
}

impl Desk {
    fn new() -> Self {
        let mut world = World::default();
        let session = world.live("a", server(1), 1);
        Self { world, session, ops: 0 }
    }

    fn send(&mut self, kind: &str, change: impl FnOnce(&mut Send)) -> Result<MessageId, ErrorCode> {
        self.ops += 1;
        let mut wanted = asked(self.session, kind);
        change(&mut wanted);
        send(&mut self.world, &QueueRules::default(), &wanted, &OpId::Random([self.ops; 16]))
    }
}

#[test]
fn a_session_that_is_over_takes_no_messages() {
    let mut desk = Desk::new();
    let session = desk.session;
    desk.world.emit(Event::SessionLost { session, reason: Reason::ServerGone, exit: None });
    assert!(desk.send(PROMPT, |_| ()).is_ok(), "one that can be restored does");
    desk.world.emit(Event::SessionStopped { session, reason: Reason::Exited, exit: None });
    assert_eq!(desk.send(PROMPT, |_| ()), Err(ErrorCode::Refused));
}

#[test]
fn a_session_that_is_being_ended_takes_what_starts_it_again() {
    let mut desk = Desk::new();
    let (session, wakes) = (desk.session, |send: &mut Send| send.wake = true);
    // Its start is on record as due together with the message.
    let due = |desk: &Desk| {
        let (message, _) = desk.world.disk.messages.values().next().unwrap();
        let starts = |wakes| {
            let events = queue::queued(&desk.world.pool, message, wakes);
            assert_eq!(events[0], Event::MessageQueued(Box::new(message.clone())));
            let due = |event: &Event| match event {
                Event::BudgetChanged { session: of, budget } if *of == session => budget.due_at,
                other => panic!("{other:?}"),
            };
            events.get(1).and_then(due)
        };
        assert_eq!(starts(false), None, "it is not to start the session");
        starts(true) == Some(message.created_at)
    };
    let begin_end = |reason| Event::SessionDraining { session, reason, exit: None, missing_since: None };
    desk.world.emit(begin_end(Reason::Exited));
    assert_eq!(
        (desk.send(PROMPT, |_| ()), desk.send(PROMPT, wakes).is_ok()),
        (Err(ErrorCode::Refused), true)
    );
    assert!(due(&desk), "it starts once it has ended");
    for order in [Reason::Killed, Reason::DrainDeadline, Reason::TmuxGone] {
        desk.world.emit(begin_end(order));
        assert_eq!((desk.send(PROMPT, wakes), due(&desk)), (Err(ErrorCode::Refused), false), "{order:?}");
    }
    desk.world.emit(begin_end(Reason::Restarted));
    assert_eq!((desk.send(PROMPT, wakes).is_ok(), due(&desk)), (true, false), "it runs again without that");
    desk.world.emit(begin_end(Reason::Drained));
    assert_eq!(
        (desk.send(PROMPT, wakes), due(&desk)),
        (Err(ErrorCode::Refused), false),
        "it works off its queue"
    );
    desk.world.emit(begin_end(Reason::Idle));
    assert_eq!(
        (desk.send(PROMPT, wakes).is_ok(), due(&desk)),
        (true, false),
        "a parked one is woken by its queue"
    );
    desk.world.emit(Event::SessionStopped { session, reason: Reason::Exited, exit: None });
    assert_eq!((desk.send(PROMPT, wakes).is_ok(), due(&desk)), (true, true), "it is over");
    // A session that its policy starts again accepts messages meanwhile.
    let policy = Policy { restart: RestartPolicy::Always, ..Policy::default() };
    desk.world.emit(Event::SessionPolicyChanged { session, policy });
    for event in
        [begin_end(Reason::Exited), Event::SessionStopped { session, reason: Reason::Exited, exit: None }]
    {
        desk.world.emit(event);
        assert!(desk.send(PROMPT, |_| ()).is_ok());
    }
}

#[test]
fn as_many_messages_as_you_like_expire_some_in_each_turn() {
    let mut desk = Desk::new();
    let rules = QueueRules { max_messages: 10_000, ..QueueRules::default() };
    for n in 0..queue::EXPIRY_BATCH as u64 + 2 {
        let wanted = Send { ttl_ms: Some(SECOND), ..asked(desk.session, WORK) };
        send(&mut desk.world, &rules, &wanted, &OpId::Named(format!("op{n}"))).unwrap();
    }
    desk.world.now += 2 * SECOND;
    for left in [queue::EXPIRY_BATCH, 2, 0] {
        let over = queue::expired(&desk.world.pool, Timestamp(desk.world.now));
        assert_eq!(over.len(), left);
        desk.world.emit_all(over);
    }
}

#[test]
fn what_is_too_long_or_has_no_proper_name_is_refused() {
    let mut desk = Desk::new();
    let usage = Err(ErrorCode::Usage);
    let long = |n: usize| "x".repeat(n);
    for kind in ["", "Upper", "a b", "-a", "a/b", &long(KIND_MAX + 1)] {
        assert_eq!(desk.send(kind, |_| ()), usage, "{kind}");
    }
    assert_eq!(desk.send(WORK, |send| send.body = "".into()), usage);
    assert_eq!(desk.send(WORK, |send| send.body = OsBytes(vec![b'x'; BODY_MAX + 1])), usage);
    assert_eq!(desk.send(WORK, |send| send.key = Some(String::new())), usage);
    assert_eq!(desk.send(WORK, |send| send.key = Some(long(KEY_MAX + 1))), usage);
    assert_eq!(desk.send(WORK, |send| send.origin = long(KEY_MAX + 1)), usage);
    let id = desk.send(&long(KIND_MAX), |send| send.body = OsBytes(vec![b'x'; BODY_MAX])).unwrap();
    assert_eq!(desk.world.pool.queue_size(desk.session), (1, BODY_MAX as u64));
    let held = ClaimRef { id, token: Token::default() };
    let (pool, rules) = (&desk.world.pool, QueueRules::default());
    let result = Some(OsBytes(vec![0; RESULT_MAX + 1]));
    assert_eq!(queue::ack(pool, held, result, Timestamp(0)).unwrap_err().code, ErrorCode::Usage);
    let reason = long(REASON_MAX + 1);
    let failed = queue::fail(pool, &rules, held, (&reason, Disposition::Retry), Timestamp(0));
    assert_eq!(failed.unwrap_err().code, ErrorCode::Usage);
}

#[test]
fn nothing_feeds_itself() {
    let mut desk = Desk::new();
    let hook = format!("hook:{}", desk.session);
    assert_eq!(desk.send(PROMPT, |send| send.origin = hook.clone()), Err(ErrorCode::Refused));
    let mut last = desk.send(WORK, |send| send.origin = hook).unwrap();
    assert_eq!(desk.send(WORK, |send| send.cause = Some(last)), Err(ErrorCode::Refused));
    for n in 0..HOPS_MAX {
        let kind = if n % 2 == 0 { "summarize" } else { WORK };
        last = desk.send(kind, |send| send.cause = Some(last)).unwrap();
    }
    assert_eq!(
        desk.send("summarize", |send| send.cause = Some(last)),
        Err(ErrorCode::Refused),
        "too long a chain"
    );
    assert_eq!(desk.world.disk.messages[&last].0.hops, HOPS_MAX);
}

/// The consecutive pauses of a kind whose every attempt fails: of one message, or of as many if each has one
/// attempt.
fn pauses(rules: &QueueRules) -> Vec<Duration> {
    let mut desk = Desk::new();
    let (mut pauses, mut locks) = (Vec::new(), LockTable::new(Epoch(1)));
    for n in 0..9 {
        if n == 0 || rules.max_attempts == 1 {
            desk.send(WORK, |_| ()).unwrap();
        }
        let (now, token) = (Timestamp(desk.world.now), locks.issue_token());
        let asked = ClaimQuery { session: desk.session, kinds: &[], max: 1 };
        let open = queue::claimable(&desk.world.pool, asked, now).remove(0);
        let (held, holder) = (
            ClaimRef { id: open.id, token },
            Holder { generator: None, process: None, lease_ms: 1, op: None, host: None },
        );
        let given = queue::claimed(&open, token, holder, now);
        desk.world.emit(given);
        let failed = queue::fail(&desk.world.pool, rules, held, ("why", Disposition::Retry), now).unwrap();
        desk.world.emit_all(failed);
        let due = queue::next_due(&desk.world.pool, now).unwrap();
        pauses.push(due.since(now));
        desk.world.now = due.0;
    }
    pauses
}

#[test]
fn a_pause_before_another_attempt_doubles_up_to_a_minute() {
    let rules = QueueRules { max_attempts: 99, breaker_failures: 0, ..QueueRules::default() };
    assert_eq!(pauses(&rules), [1, 2, 4, 8, 16, 32, 60, 60, 60].map(Duration::from_secs));
}

#[test]
fn a_pause_before_another_probe_doubles_up_to_half_an_hour() {
    let rules = QueueRules { max_attempts: 1, breaker_failures: 1, ..QueueRules::default() };
    let minutes = [1, 2, 4, 8, 16, 30, 30, 30, 30];
    assert_eq!(pauses(&rules), minutes.map(|n| Duration::from_secs(n * 60)));
}

#[test]
fn an_archive_covers_a_session_until_one_of_its_messages_comes_or_goes_on() {
    type Step = fn(&mut Machine);
    let steps: [(&str, bool, Step); 6] = [
        ("nothing happens", true, |_| ()),
        ("another session has one", true, |m| assert!(m.send(&Sending { session: TWO, ..PLAIN }).is_ok())),
        ("one is new", false, |m| assert!(m.send(&PLAIN).is_ok())),
        ("one is worked", false, |m| m.run(&[Command::Ack(0)])),
        ("one is given back", false, |m| m.run(&[Command::Fail(0, Disposition::GiveBack)])),
        ("one is claimed again", false, |m| {
            m.run(&[Command::Fail(0, Disposition::Later(Some(0))), Command::Pass(SECOND)]);
            assert!(claim(m).is_some());
        }),
    ];
    for (what, is_covered, step) in steps {
        let mut machine = machine();
        let over = machine.send(&PLAIN).unwrap();
        claim(&mut machine).unwrap();
        machine.run(&[Command::Ack(0)]);
        let open = machine.send(&PLAIN).unwrap();
        claim(&mut machine).unwrap();
        let archived = ArchivedMessages::of(&machine.world.pool, ONE);
        assert_eq!(archived.ids(), [over, open]);
        step(&mut machine);
        assert_eq!(archived.covers(&machine.world.pool, ONE), is_covered, "{what}");
    }
    let mut machine = machine();
    let over = machine.send(&PLAIN).unwrap();
    claim(&mut machine).unwrap();
    machine.run(&[Command::Ack(0)]);
    let archived = ArchivedMessages::of(&machine.world.pool, ONE);
    machine.run(&[Command::Pass(3601 * SECOND), Command::Forget]);
    assert_eq!(ArchivedMessages::of(&machine.world.pool, ONE).ids(), []);
    assert!(archived.ids() == [over] && archived.covers(&machine.world.pool, ONE), "it was forgotten since");
}
