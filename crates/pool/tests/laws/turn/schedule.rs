//! Ticks of the scheduler.

use std::time::Duration;

use pool::slots::{self, Action, LossSource, Waiter, Wanted};
use pool::{prompt, session};
use proptest::prelude::*;
use protocol::clock::{Clock, ClockStep};
use protocol::policy::{DrainDeadline, RestartPolicy};
use protocol::session::Conversation;
use protocol::thought::{StreamPosition, Thought};
use protocol::tmux::TmuxState;
use protocol::{
    AgentEvent, Event, Exit, Lifecycle, MessageId, Notes, Reason, Session, SessionId, Tag, Timestamp,
};

use super::{Engine, MINUTE, ONE, THREE, TWO};
use crate::queue::send_prompt;
use crate::stage::agent;
use crate::world::{pane, up};

/// The sessions that are started, in this order.
fn started(actions: &[Action]) -> Vec<SessionId> {
    let start = |action: &Action| if let Action::Start(session) = action { Some(session.id) } else { None };
    actions.iter().filter_map(start).collect()
}

/// The sessions that are parked, in this order.
fn parked(actions: &[Action]) -> Vec<SessionId> {
    let park = |action: &Action| if let Action::Park(session, _) = action { Some(*session) } else { None };
    actions.iter().filter_map(park).collect()
}

impl Engine {
    /// Parks a session that is sent a prompt then.
    fn wants_slot(&mut self, id: SessionId) {
        self.is(id, Lifecycle::Parked, Reason::Evicted);
        send_prompt(&mut self.world, id).unwrap();
        self.pass(1);
    }

    /// Two slots, both in use by sessions that have been idle for minutes, and a third session that wants one.
    fn full() -> Self {
        let mut engine = Self::with_live(3);
        engine.settings.max_sessions = 2;
        engine.wants_slot(THREE);
        engine.pass(10 * MINUTE);
        let now = engine.world.now;
        engine.quiet(&[now - 2 * MINUTE, now - 3 * MINUTE]);
        engine
    }
}

#[test]
fn what_is_over_its_quantum_gives_way_only_where_nothing_idle_can_be_parked() {
    let mut engine = Engine::full();
    send_prompt(&mut engine.world, ONE).unwrap();
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [TWO]);
    assert!(!engine.volatile.scheduler.gives_way(ONE), "an idle one went");
    engine.change(TWO, |s| s.policy.pinned = true);
    engine.is(TWO, Lifecycle::Live, Reason::Killed);
    engine.change(ONE, |s| s.lock = None);
    engine.volatile.scheduler.note_quiet(std::iter::empty().collect(), engine.now());
    let (tag, now) = (engine.tag(ONE), engine.now());
    engine.volatile.prompts.delivered(tag, now);
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [], "none is known to be silent");
    assert!(engine.volatile.scheduler.gives_way(ONE));
}

#[test]
fn g08_who_comes_later_gets_no_slot_that_others_wait_for() {
    let mut engine = Engine::with_live(4);
    let gets_slot = |engine: &mut Engine, ticket| {
        let wanted = Wanted::New(ticket);
        let (decided, _) = engine.turn(|mut turn, settings| {
            slots::decide_in_line(&mut turn, (Waiter::Request(ticket), &wanted), |turn, ahead| {
                (slots::free(turn.pool(), settings) > ahead).then_some(())
            })
        });
        decided.is_some()
    };
    assert_eq!([1, 2].map(|ticket| gets_slot(&mut engine, ticket)), [false, false], "all slots are taken");
    engine.is(ONE, Lifecycle::Stopped, Reason::Exited);
    assert_eq!([3, 2, 1].map(|ticket| gets_slot(&mut engine, ticket)), [false, false, true]);
    // The first one has left the line, and its session does not run yet.
    assert_eq!([3, 2].map(|ticket| gets_slot(&mut engine, ticket)), [false, true]);
}

#[test]
fn nothing_is_parked_for_who_waits_for_a_session_that_runs_by_now() {
    let mut engine = Engine::with_live(2);
    engine.settings.max_sessions = 2;
    engine.pass(10 * MINUTE);
    let now = engine.world.now;
    engine.quiet(&[now - 2 * MINUTE, now - 3 * MINUTE]);
    // The request waits for a session of a name that another request has created just now.
    let name = engine.session(ONE).name.as_str().to_owned();
    engine.volatile.scheduler.waiting.join(Waiter::Request(1), Wanted::Name(name));
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), []);
    engine.volatile.scheduler.waiting.join(Waiter::Request(2), Wanted::Name("other".to_owned()));
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [TWO]);
}

#[test]
fn the_idlest_session_is_parked_for_one_that_waits() {
    let mut engine = Engine::full();
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [TWO]);
    let (session, tag) = (engine.session(TWO), engine.tag(TWO));
    assert_eq!((session.lifecycle, session.reason), (Lifecycle::Draining, Some(Reason::Evicted)));
    assert!(engine.volatile.reaping.is_guarded(tag), "tmux has to show first that no client is attached");
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [], "a slot is about to come free");
    engine.pass(11_000);
    let now = engine.world.now;
    engine.quiet(&[now - 2 * MINUTE]);
    let (tick, _) = engine.tick();
    assert_eq!(parked(&tick.actions), [ONE], "it did not come free in time");
}

#[test]
fn c11_a_session_that_somebody_attached_to_is_attended_from_then_on() {
    for (begun, parks) in [(false, vec![]), (true, vec![TWO])] {
        let mut engine = Engine::full();
        engine.change(ONE, |s| s.policy.pinned = true);
        let conversation = Some(Conversation { id: "talk".to_owned(), begun });
        engine.change(TWO, |s| (s.attached_clients, s.conversation) = (1, conversation));
        assert_eq!(parked(&engine.tick().0.actions), [], "somebody looks at it");
        engine.change(TWO, |s| s.attached_clients = 0);
        assert!(engine.volatile.prompts.attended().contains(&engine.tag(TWO)));
        assert_eq!(parked(&engine.tick().0.actions), parks, "begun by the pool: {begun}");
    }
}

#[test]
fn nothing_is_parked_by_an_old_sample_or_while_its_parking_is_deferred() {
    let mut engine = Engine::full();
    engine.pass(201);
    let (tick, _) = engine.tick();
    assert!(parked(&tick.actions).is_empty() && tick.wants_sample);
    let now = engine.world.now;
    engine.quiet(&[now - 2 * MINUTE, now - 3 * MINUTE]);
    let (tag, at) = (engine.tag(TWO), engine.now());
    engine.volatile.scheduler.defer_parking((TWO, tag), LossSource::Screen, at);
    let (tick, _) = engine.tick();
    assert!(parked(&tick.actions) == [ONE] && !tick.wants_sample);
}

#[test]
fn parking_goes_on_after_a_pause_or_after_output_if_something_would_have_been_lost() {
    for (source, wrote, goes_on) in [
        (LossSource::Unknown, false, true),
        (LossSource::Processes, false, true),
        (LossSource::Screen, false, false),
        (LossSource::Screen, true, true),
    ] {
        let mut engine = Engine::full();
        let tag = engine.tag(TWO);
        let at = engine.now();
        engine.volatile.scheduler.defer_parking((TWO, tag), source, at);
        let is_deferred = |engine: &Engine| {
            engine.volatile.scheduler.is_parking_deferred(&engine.world.pool, TWO, engine.now())
        };
        let before = engine.world.now - MINUTE;
        engine.quiet(&[before, before]);
        assert!(is_deferred(&engine), "at first");
        engine.pass(11_000);
        let quiet = if wrote { engine.world.now - 1000 } else { before };
        engine.quiet(&[before, quiet]);
        assert_eq!(!is_deferred(&engine), goes_on, "{source:?} {wrote}");
    }
}

#[test]
fn a_sample_that_was_taken_for_a_decision_counts_however_long_that_took() {
    let mut engine = Engine::full();
    engine.pass(10_000);
    let (tick, _) = engine.tick();
    assert!(parked(&tick.actions).is_empty() && tick.wants_sample);
    engine.sampled = true;
    let (tick, _) = engine.tick();
    assert!(
        parked(&tick.actions) == [TWO] && !tick.wants_sample,
        "else nothing would start on a slow machine"
    );
}

#[test]
fn starts_need_capacity_and_no_start_happens_twice() {
    let mut engine = Engine::with_live(1);
    engine.wants_slot(ONE);
    engine.capacity = None;
    let (tick, _) = engine.tick();
    assert!(tick.actions.is_empty() && tick.wants_sample);
    engine.capacity = Some(0);
    let (tick, _) = engine.tick();
    assert!(tick.actions.is_empty() && !tick.wants_sample);
    engine.capacity = Some(1);
    let (tick, _) = engine.tick();
    assert_eq!(started(&tick.actions), [ONE]);
    let (tick, events) = engine.tick();
    assert_eq!((started(&tick.actions), events), (vec![], vec![]));
}

#[test]
fn nothing_is_started_or_parked_for_a_start_while_a_strangers_server_answers() {
    let mut engine = Engine::full();
    let panes: Vec<_> = [ONE, TWO].into_iter().zip(1..).map(|(id, n)| pane(&engine.world, id, n)).collect();
    let see = |engine: &mut Engine, state: TmuxState| {
        let seen = engine.see(state, &[]);
        engine.world.emit_all(seen.events);
    };
    see(&mut engine, up(2, vec![]));
    assert_eq!(engine.tick().0.actions, [], "none is parked for it");
    engine.settings.max_sessions = 3;
    assert_eq!(engine.tick().0.actions, [], "there is a slot, and not the server");
    see(&mut engine, up(1, panes));
    assert_eq!(started(&engine.tick().0.actions), [THREE]);
}

#[test]
fn a_session_that_a_user_locked_is_woken_for_the_users_prompts_only() {
    let mut engine = Engine::with_live(1);
    engine.wants_slot(ONE);
    let queued = engine.world.pool.pending_messages_of(ONE).next().unwrap().id;
    engine.lock(ONE, &[]);
    assert_eq!(started(&engine.tick().0.actions), [], "nothing was sent under the lock");
    engine.lock(ONE, &[MessageId(queued.0 - 1), MessageId(queued.0 + 1)]);
    assert_eq!(started(&engine.tick().0.actions), [], "the user's prompts are done");
    engine.lock(ONE, &[queued]);
    assert_eq!(started(&engine.tick().0.actions), [ONE]);
}

#[test]
fn lost_sessions_are_restored_once_and_only_after_the_first_observation() {
    let (mut engine, four) = (Engine::with_live(4), SessionId(4));
    for id in [ONE, TWO, four] {
        engine.is(id, Lifecycle::Lost, Reason::ServerGone);
    }
    engine.change(TWO, |session| session.budget.failures = 3);
    engine.change(four, |session| session.budget.exhausted = true);
    // A copy of another pool's database: what it has runs there.
    engine.is(THREE, Lifecycle::Lost, Reason::DatabaseReplaced);
    engine.change(THREE, |session| session.incarnation = None);
    let before = std::mem::replace(&mut engine.volatile, Engine::new().volatile);
    engine.restore_spacing = Some(Duration::from_secs(5));
    let (tick, events) = engine.tick();
    assert_eq!((tick.actions, events), (vec![], vec![]), "nothing was observed yet");
    engine.volatile = before;
    let (tick, _) = engine.tick();
    assert_eq!(started(&tick.actions), [ONE], "one now");
    assert_eq!(engine.session(TWO).budget.due_at, Some(Timestamp(engine.world.now + 5000)), "one later");
    assert_eq!(engine.session(TWO).budget.failures, 3, "a start of the daemon resets nothing");
    assert_eq!([THREE, four].map(|id| engine.session(id).budget.due_at), [None, None]);
    engine.change(TWO, |s| s.budget.due_at = None);
    let (tick, events) = engine.tick();
    assert_eq!((tick.actions, events), (vec![], vec![]), "only once");
}

#[test]
fn nothing_follows_from_the_end_of_an_agent_before_its_conversation_is_checked() {
    for is_lost in [false, true] {
        let mut engine = Engine::with_live(1);
        engine.settings.agents = [("claude".to_owned(), agent("claude"))].into();
        let at = engine.now();
        engine.change(ONE, |s| {
            s.spec.agent = "claude".to_owned();
            s.conversation = Some(Conversation { id: "talk".to_owned(), begun: true });
            s.policy.restart = RestartPolicy::OnFailure;
            let run = s.incarnation.as_mut().unwrap();
            (run.resumed, run.started_at) = (true, at);
            s.exit = Some(Exit { code: Some(1), signal: None, at });
        });
        engine.is(ONE, Lifecycle::Stopped, Reason::Exited);
        let tag = engine.tag(ONE);
        let (tick, events) = engine.tick();
        assert_eq!((tick.actions, events), (vec![Action::CheckConversation(ONE, tag)], vec![]));
        let (tick, events) = engine.tick();
        assert_eq!((tick.actions, events), (vec![], vec![]), "the check is under way");
        let checked =
            engine.turn(|turn, settings| slots::conversation_checked(turn, settings, (ONE, tag), is_lost));
        assert_eq!(checked.0, is_lost);
        assert_eq!(engine.session(ONE).conversation.as_ref().unwrap().begun, !is_lost);
        let (tick, _) = engine.tick();
        assert_eq!(
            started(&tick.actions).len(),
            usize::from(is_lost),
            "at once, or after the policy's pause"
        );
        assert_eq!(engine.session(ONE).budget.due_at.is_some(), !is_lost);
    }
}

#[test]
fn a_session_is_removed_once_when_its_retention_is_over() {
    let mut engine = Engine::with_live(1);
    engine.is(ONE, Lifecycle::Stopped, Reason::Killed);
    engine.keep_stopped = Some(Duration::from_secs(3600));
    engine.pass(60 * MINUTE - 1);
    assert_eq!(engine.tick().0.actions, []);
    engine.pass(1);
    let removed = vec![Action::Remove(ONE, Reason::Ttl)];
    assert_eq!(engine.tick().0.actions, removed);
    assert_eq!(engine.tick().0.actions, [], "it is being removed");
    engine.volatile.scheduler.end_removal(ONE);
    assert_eq!(engine.tick().0.actions, removed, "the removal failed");
}

#[test]
fn sessions_whose_output_is_still_read_keep_no_other_one_from_its_removal() {
    let mut engine = Engine::with_live(5);
    engine.keep_stopped = Some(Duration::from_secs(3600));
    let ids = [1, 2, 3, 4, 5].map(SessionId);
    ids.iter().for_each(|id| engine.is(*id, Lifecycle::Stopped, Reason::Killed));
    engine.pass(60 * MINUTE);
    let removal = |id: &SessionId| Action::Remove(*id, Reason::Ttl);
    let (first, last) = ids.split_at(4);
    assert_eq!(engine.tick().0.actions, first.iter().map(removal).collect::<Vec<_>>());
    first.iter().for_each(|id| engine.volatile.scheduler.hold_removal(*id));
    assert_eq!(engine.tick().0.actions, [removal(&last[0])]);
    assert_eq!(engine.tick().0.actions, []);
    engine.volatile.scheduler.end_removal(ids[0]);
    assert_eq!(engine.tick().0.actions, [removal(&ids[0])], "nobody reads it any more");
}

#[test]
fn a_draining_session_is_done_when_its_queue_is_empty_and_its_agent_rests() {
    let is_done = |engine: &mut Engine, quiet_for: u64| {
        let now = engine.world.now;
        engine.quiet(&[now - quiet_for]);
        engine.tick();
        engine.volatile.scheduler.drained().contains(&ONE)
    };
    for clients in [0, 1] {
        let mut engine = Engine::with_live(1);
        engine.is(ONE, Lifecycle::Draining, Reason::Drained);
        engine.change(ONE, |s| s.attached_clients = clients);
        engine.pass(MINUTE);
        assert!(!is_done(&mut engine, 1000), "its program writes, watched by {clients}");
        assert!(is_done(&mut engine, 2000), "watched by {clients}");
        send_prompt(&mut engine.world, ONE).unwrap_err();
        assert!(!is_done(&mut engine, 1999), "watched by {clients}");
    }
}

#[test]
fn a_drain_waits_for_a_program_that_writes_and_says_so() {
    let mut engine = Engine::with_live(1);
    engine.is(ONE, Lifecycle::Draining, Reason::Drained);
    let waits = |engine: &mut Engine, silent: bool| {
        engine.pass(MINUTE);
        let now = engine.world.now;
        engine.quiet(&[if silent { now - MINUTE } else { now }]);
        engine.tick();
        let is_done = engine.volatile.scheduler.drained().contains(&ONE);
        let waits = slots::drain_waits_for(&engine.volatile, engine.session(ONE));
        assert_eq!(is_done, waits.is_none());
        waits
    };
    let told = waits(&mut engine, false).expect("it may be a job that is not finished");
    assert!(told.contains("its program is writing") && told.contains("`poolctl kill s1`"), "{told}");
    let ended = Session { lifecycle: Lifecycle::Stopped, ..engine.session(ONE).clone() };
    assert_eq!(slots::drain_waits_for(&engine.volatile, &ended), None, "the drain is over");
    assert_eq!(waits(&mut engine, true), None);
}

#[test]
fn p26_a_drain_is_ended_at_its_deadline_and_what_is_left_stays_queued() {
    let mut engine = Engine::with_live(1);
    send_prompt(&mut engine.world, ONE).unwrap();
    let drain = |engine: &mut Engine, after_ms: Option<u64>| {
        let deadline = after_ms.map(|after_ms| DrainDeadline { since: engine.now(), after_ms });
        let events = session::drain(&engine.world.pool, engine.session(ONE), deadline).unwrap();
        engine.world.emit_all(events);
    };
    drain(&mut engine, Some(MINUTE));
    drain(&mut engine, None);
    assert!(engine.session(ONE).drain_deadline.is_some(), "a drain without a deadline keeps it");
    engine.pass(MINUTE - 1);
    let (tick, events) = engine.tick();
    assert_eq!((events, tick.pause), (vec![], Duration::from_millis(1)));
    drain(&mut engine, Some(2 * MINUTE));
    engine.pass(2 * MINUTE - 1);
    assert_eq!(engine.tick().1, [], "another deadline replaces it");
    engine.pass(1);
    engine.tick();
    let session = engine.session(ONE);
    let state = (session.lifecycle, session.reason, session.drain_deadline);
    assert_eq!(state, (Lifecycle::Draining, Some(Reason::DrainDeadline), None));
    assert!(!session.takes_prompts() && !engine.world.pool.is_queue_empty(ONE));
    assert_eq!(engine.tick().1, [], "once");
    drain(&mut engine, Some(0));
    assert_eq!(engine.session(ONE).drain_deadline, None, "it is being ended already");
}

#[test]
fn p26_a_deadline_ends_no_session_that_has_worked_off_its_queue_and_is_being_ended() {
    let mut engine = Engine::with_live(1);
    let deadline = DrainDeadline { since: engine.now(), after_ms: MINUTE };
    let events = session::drain(&engine.world.pool, engine.session(ONE), Some(deadline)).unwrap();
    engine.world.emit_all(events);
    engine.pass(MINUTE - 1);
    let now = engine.world.now;
    engine.quiet(&[now - 5000]);
    engine.tick();
    assert!(engine.volatile.scheduler.drained().contains(&ONE));
    engine.pass(1);
    let now = engine.world.now;
    engine.quiet(&[now - 5000]);
    engine.tick();
    assert_eq!(engine.session(ONE).reason, Some(Reason::Drained));
}

#[test]
fn nothing_is_begun_once_the_daemon_stops() {
    let mut engine = Engine::full();
    engine.volatile.stop();
    let (tick, events) = engine.tick();
    assert!(tick.actions.is_empty() && events.is_empty() && !tick.wants_sample);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Waiting sessions start in their order, a few at a time, and never more than there are slots.
    #[test]
    fn sessions_start_in_the_order_of_their_prompts_within_the_slots(
        slots in 1_usize..9,
        running in 0_u32..4,
        order in Just((1..=6_u64).collect::<Vec<_>>()).prop_shuffle(),
    ) {
        let mut engine = Engine::with_live(6 + running);
        engine.settings.max_sessions = slots.max(running as usize);
        let order: Vec<SessionId> = order.into_iter().map(SessionId).collect();
        order.iter().for_each(|id| engine.wants_slot(*id));
        let mut begun = Vec::new();
        for _ in 0..4 {
            let (tick, events) = engine.tick();
            let now = started(&tick.actions);
            prop_assert!(now.len() <= 4, "a few at a time");
            prop_assert_eq!(events.iter().filter(|e| matches!(e, Event::SessionStarting { .. })).count(), now.len());
            prop_assert!(engine.world.pool.slots_used() <= engine.settings.max_sessions);
            for id in &now {
                engine.change(*id, |s| s.lifecycle = Lifecycle::Live);
                engine.volatile.scheduler.end_start(*id);
            }
            begun.extend(now);
        }
        let free = engine.settings.max_sessions - running as usize;
        prop_assert_eq!(&begun[..], &order[..free.min(order.len())]);
    }
}

#[test]
fn w24_what_was_said_of_a_conversation_ends_with_it() {
    let conversation = |id: &str, begun| {
        let conversation = Some(Conversation { id: id.to_owned(), begun });
        Event::ConversationChanged { session: ONE, conversation }
    };
    let known_after = |event: Event| {
        let mut engine = Engine::with_live(1);
        let place = Some(StreamPosition { stream: "a".to_owned(), seq: 5 });
        let thought =
            Thought { text: Some("reading".to_owned()), token_count: 9, place, ..Thought::default() };
        let notes = Notes { tokens: Some(8), skill: Some("review".to_owned()), ..Notes::default() };
        engine.turn(|turn, _| {
            turn.emit(conversation("first", true));
            turn.emit(Event::Agent(AgentEvent::ThoughtPublished { session: ONE, thought }));
            turn.emit(Event::Agent(AgentEvent::AgentNoted { session: ONE, notes }));
            turn.emit(event);
        });
        let (pool, session) = (&engine.world.pool, ONE);
        let (thought, notes) = (pool.thought(session).unwrap(), pool.notes(session).unwrap());
        assert_eq!(thought.place.as_ref().map(|place| place.seq), Some(5), "its stream goes on");
        (thought.text.is_some(), thought.token_count > 0, notes.tokens.is_some(), notes.skill.is_some())
    };
    assert_eq!(known_after(conversation("first", true)), (true, true, true, true));
    assert_eq!(known_after(conversation("second", false)), (false, false, false, false), "another");
    assert_eq!(known_after(conversation("first", false)), (false, false, false, false), "not to be resumed");
}

#[test]
fn a_start_that_still_waits_has_opened_no_files() {
    let mut engine = Engine::with_live(3);
    let starts = |engine: &Engine| engine.volatile.scheduler.starts_since(&engine.world.pool, 0);
    for id in [ONE, TWO, THREE] {
        engine.volatile.scheduler.begin_start(id);
    }
    assert_eq!(starts(&engine), 3, "they have run for a moment");
    engine.is(ONE, Lifecycle::Stopped, Reason::Exited);
    engine.is(TWO, Lifecycle::Draining, Reason::Restarted);
    assert_eq!(starts(&engine), 1, "one waits for a slot, one for the end of what runs");
    engine.volatile.scheduler.end_start(THREE);
    assert_eq!(starts(&engine), 1, "it has ended since");
    assert_eq!(engine.volatile.scheduler.starts_since(&engine.world.pool, 1), 0);
}

#[test]
fn what_was_typed_is_unheard_until_the_agent_of_the_same_incarnation_reports() {
    let mut engine = Engine::with_live(1);
    let (tag, given) = (engine.tag(ONE), engine.now());
    let unheard = |engine: &mut Engine| engine.turn(|turn, _| prompt::unheard_ago(turn, tag)).0;
    let heard = |engine: &mut Engine, hooked, at| {
        let notes = Notes { hooked: Some(hooked), heard_at: Some(at), ..Notes::default() };
        engine.world.emit(Event::Agent(AgentEvent::AgentNoted { session: ONE, notes }));
    };
    assert_eq!(unheard(&mut engine), None, "nothing was typed");
    engine.volatile.prompts.delivered(tag, given);
    engine.pass(1000);
    assert_eq!(unheard(&mut engine), Some(Duration::from_secs(1)));
    heard(&mut engine, tag, Timestamp(given.0 - 1));
    assert_eq!(unheard(&mut engine), Some(Duration::from_secs(1)), "that was before");
    heard(&mut engine, Tag([99; 16]), Timestamp(given.0 + 1));
    assert_eq!(unheard(&mut engine), Some(Duration::from_secs(1)), "that was another incarnation");
    heard(&mut engine, tag, given);
    assert_eq!(unheard(&mut engine), None);
    let (entered, recorded) = (Timestamp(given.0 + 500), engine.now());
    engine.volatile.prompts.delivered_since(tag, entered, recorded);
    assert_eq!(unheard(&mut engine), Some(Duration::ZERO), "it was typed after the report");
    heard(&mut engine, tag, entered);
    assert_eq!(unheard(&mut engine), None, "the report came before it was recorded as typed");
    engine.volatile.prompts.reported(tag, recorded);
    assert_eq!(unheard(&mut engine), None, "a report is nothing that was typed");
}

#[test]
fn keys_are_later_than_what_was_before_them_whatever_the_clock_says() {
    let mut engine = Engine::with_live(1);
    let since = |engine: &mut Engine, at| engine.turn(|turn, _| prompt::has_keys_since(turn, ONE, at)).0;
    let press = |engine: &mut Engine| {
        let pressed = engine.turn(|turn, _| turn.emit(Event::KeysPressed(ONE))).1;
        engine.world.emit_all(pressed);
    };
    engine.pass(10 * MINUTE);
    let typed = engine.now();
    assert!(!since(&mut engine, typed));
    // The clock is set back by five minutes between the prompt and the keys.
    engine.pass(MINUTE);
    let back = ClockStep::new(engine.now(), Timestamp(engine.world.now - 5 * MINUTE));
    engine.world.now = back.after.0;
    let clock = Clock { read_at: back.after, steps: vec![back], ..Clock::default() };
    engine.world.emit(Event::ClockRead(clock));
    engine.pass(1000);
    press(&mut engine);
    assert!(since(&mut engine, typed));
    engine.pass(1000);
    let later = engine.now();
    assert!(!since(&mut engine, later), "they were pressed before");
    // The next program has a line of its own, without those keys.
    let incarnation = engine.session(ONE).incarnation.clone().unwrap();
    engine.world.emit(Event::SessionStarting { session: ONE, incarnation, incarnations: 2, restarts: 1 });
    assert_eq!(engine.session(ONE).keys_at, None);
}
