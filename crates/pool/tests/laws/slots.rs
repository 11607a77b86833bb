//! Eviction, waiting for slots, and retention.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::slots::EvictionInputs;
use pool::{Agent, QueueRules, Settings, queue, session, slots};
use protocol::policy::Policy;
use protocol::session::Conversation;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Epoch, ErrorCode, Event, Lifecycle, MessageId,
    MessageState, MessageStatus, OpId, OsBytes, PROMPT, Reason, Seq, SessionId, Source, Stamped, Tag,
    Timestamp, Token,
};

use crate::queue::{asked, send, send_prompt};
use crate::world::{World, server, session_lock, settings};

/// Sessions named by letters, all live since 0 and able to resume, with the volatile facts about them.
struct Scene {
    world: World,
    quiet: BTreeMap<SessionId, Timestamp>,
    worked: BTreeMap<Tag, Timestamp>,
    touched: BTreeSet<Tag>,
    busy: BTreeSet<SessionId>,
}

const MINUTE: u64 = 60_000;

impl Scene {
    fn new(sessions: u32) -> Self {
        let mut world = World::default();
        let ids: Vec<SessionId> = (0..sessions)
            .map(|n| {
                let id = world.live(&format!("s{n}"), server(1), n + 1);
                let mut record = world.pool.session(id).unwrap().clone();
                record.spec.resume_args = vec!["--resume".into()];
                world.emit(Event::SessionCreated(Box::new(record)));
                id
            })
            .collect();
        let quiet = ids.into_iter().map(|id| (id, Timestamp(0))).collect();
        Self { world, quiet, worked: BTreeMap::new(), touched: BTreeSet::new(), busy: BTreeSet::new() }
    }

    fn change(&mut self, id: u64, change: impl FnOnce(&mut protocol::Session)) {
        let mut record = self.world.pool.session(SessionId(id)).unwrap().clone();
        change(&mut record);
        self.world.emit(Event::SessionCreated(Box::new(record)));
    }

    fn is(&mut self, id: u64, lifecycle: Lifecycle, reason: Reason) {
        self.change(id, |s| (s.lifecycle, s.reason) = (lifecycle, Some(reason)));
    }

    fn lock(&mut self, id: u64) {
        self.change(id, |s| s.lock = Some(session_lock(1, Timestamp(0))));
    }

    fn policy(&mut self, id: u64, policy: Policy) {
        self.change(id, |s| s.policy = policy);
    }

    fn inputs(&self) -> EvictionInputs<'_> {
        let now = Timestamp(self.world.now);
        EvictionInputs {
            now,
            quiet_since: &self.quiet,
            delivered_at: &self.worked,
            attended: &self.touched,
            busy: &self.busy,
        }
    }

    fn victim(&self) -> Option<u64> {
        slots::next_to_park(&self.world.pool, &settings(), &self.inputs()).map(|id| id.0)
    }

    /// The number of sessions that are given nothing more, as others wait.
    fn give_way(&self) -> usize {
        slots::over_quantum(&self.world.pool, &settings(), &self.inputs()).count()
    }

    fn prompt(&mut self, id: u64) -> MessageId {
        send_prompt(&mut self.world, SessionId(id)).unwrap()
    }

    /// Sets the activity of the session's agent.
    fn does(&mut self, id: u64, (state, source): (ActivityState, Source), asks: Option<AskKind>, since: u64) {
        let (session, since) = (SessionId(id), Timestamp(since));
        let tag = self.world.pool.session(session).unwrap().incarnation.as_ref().map(|run| run.tag);
        let ask = asks.map(|kind| Ask { id: 1, kind, text: "?".to_owned(), tool: None, answerable: false });
        let activity = Activity { state, source, since, ask, tag, ..Activity::default() };
        self.world.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
    }

    /// Queues a prompt that is not typed before this time.
    fn prompt_at(&mut self, id: u64, at: u64) -> MessageId {
        let message = self.prompt(id);
        let (not_before, changed_at) = (Some(Timestamp(at)), Timestamp(self.world.now));
        let status = Box::new(MessageStatus { not_before, changed_at, ..MessageStatus::default() });
        self.world.emit(Event::MessageChanged { id: message, session: SessionId(id), status });
        message
    }

    fn wanting(&self, now: u64) -> Vec<u64> {
        let all = slots::wanting_start(&self.world.pool, Timestamp(now));
        all.iter().map(|id| id.0).collect()
    }

    fn next_start(&self, now: u64) -> Option<u64> {
        slots::next_start(&self.world.pool, Timestamp(now)).map(|at| at.0)
    }

    fn type_into(&mut self, id: u64) {
        let (now, token) = (Timestamp(self.world.now), Token { epoch: Epoch(1), n: 1 });
        let event = queue::begin_typing(
            &queue::next_prompt(&self.world.pool, SessionId(id), now).unwrap(),
            token,
            now,
        );
        self.world.emit(event);
    }
}

#[test]
fn c11_the_idlest_is_put_aside_and_never_one_that_has_something_to_do() {
    let mut scene = Scene::new(4);
    scene.world.now = 5 * MINUTE;
    for (id, quiet) in [(1, 10_000), (2, 20_000), (3, 30_000), (4, 40_000)] {
        scene.quiet.insert(SessionId(id), Timestamp(quiet));
    }
    assert_eq!(scene.victim(), Some(1));
    scene.prompt(1);
    assert_eq!(scene.victim(), Some(2), "a message waits");
    scene.type_into(1);
    assert_eq!(scene.victim(), Some(2), "a message is in flight");
    scene.change(2, |s| s.attached_clients = 1);
    assert_eq!(scene.victim(), Some(3), "somebody looks at it");
    scene.policy(3, Policy { pinned: true, ..Policy::default() });
    assert_eq!(scene.victim(), Some(4), "it is pinned");
    scene.busy.insert(SessionId(4));
    assert_eq!(scene.victim(), None, "somebody is at it");
    scene.busy.clear();
    scene.lock(4);
    assert_eq!(scene.victim(), None, "a user holds its lock");
    scene.change(4, |s| s.lock = None);
    scene.is(4, Lifecycle::Draining, Reason::Exited);
    assert_eq!(scene.victim(), None, "it ends anyhow");
}

#[test]
fn c11_only_where_nothing_is_lost_by_it() {
    let mut scene = Scene::new(1);
    scene.world.now = 5 * MINUTE;
    scene.change(1, |s| s.spec.resume_args.clear());
    assert_eq!(scene.victim(), None, "it cannot take up where it was");
    let agents = [("command".to_owned(), Agent { parkable: true, ..Agent::default() })].into();
    let allowed = Settings { agents, ..settings() };
    assert_eq!(slots::next_to_park(&scene.world.pool, &allowed, &scene.inputs()), Some(SessionId(1)));
    scene.change(1, |s| s.incarnation.as_mut().unwrap().agent = s.incarnation.as_ref().unwrap().init);
    assert_eq!(slots::next_to_park(&scene.world.pool, &allowed, &scene.inputs()), None, "it was adopted");
}

#[test]
fn t23_ephemeral_sessions_go_first_at_the_cap_also_where_they_cannot_resume() {
    use ActivityState::{Busy, Idle, Unknown};
    let ephemeral = |pinned| Policy { ephemeral: true, pinned, ..Policy::default() };
    let mut scene = Scene::new(2);
    scene.world.now = 5 * MINUTE;
    scene.quiet.insert(SessionId(2), Timestamp(4 * MINUTE));
    assert_eq!(scene.victim(), Some(1), "the idlest");
    scene.policy(2, ephemeral(false));
    assert_eq!(scene.victim(), Some(2), "ephemeral, though idle for a shorter time");
    scene.change(2, |s| s.spec.resume_args.clear());
    for (said, goes) in [
        ((Idle, Source::Hook), true),
        ((Idle, Source::Process), true),
        ((Idle, Source::Terminal), true),
        ((Busy, Source::Hook), false),
        ((Idle, Source::Output), false),
        ((Unknown, Source::Nothing), false),
    ] {
        scene.does(2, said, None, 0);
        assert_eq!(scene.victim(), Some(if goes { 2 } else { 1 }), "{said:?}");
    }
    scene.does(2, (Idle, Source::Process), None, 0);
    scene.policy(2, ephemeral(true));
    assert_eq!(scene.victim(), Some(1), "it is pinned");
    scene.policy(2, ephemeral(false));
    scene.prompt(2);
    assert_eq!(scene.victim(), Some(1), "it has something to do");
    scene.world.now = 20 * MINUTE;
    scene.policy(1, Policy { pinned: true, ..Policy::default() });
    assert_eq!(scene.victim(), None, "it would forget what came before its next message");
}

#[test]
fn t23_an_ephemeral_session_that_gave_its_slot_up_is_kept_only_if_it_can_resume_or_has_something_to_do() {
    let mut scene = Scene::new(1);
    scene.policy(1, Policy { ephemeral: true, ..Policy::default() });
    let goes = |scene: &Scene| {
        session::past_retention(&scene.world.pool, &crate::world::settings(), None, Timestamp(10_000)).count()
            == 1
    };
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    assert!(!goes(&scene), "it can resume");
    scene.change(1, |s| s.spec.resume_args.clear());
    assert!(goes(&scene));
    scene.is(1, Lifecycle::Parked, Reason::Parked);
    assert!(!goes(&scene), "a user put it aside");
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    scene.prompt(1);
    assert!(!goes(&scene), "a message wakes it");
}

#[test]
fn c11_what_is_written_now_or_not_known_is_not_idle() {
    let mut scene = Scene::new(1);
    scene.world.now = 5 * MINUTE;
    scene.quiet.insert(SessionId(1), Timestamp(5 * MINUTE - 1999));
    assert_eq!(scene.victim(), None);
    scene.quiet.insert(SessionId(1), Timestamp(5 * MINUTE - 2000));
    assert_eq!(scene.victim(), Some(1));
    scene.quiet.clear();
    assert_eq!(scene.victim(), None);
}

#[test]
fn c12_idle_is_counted_from_what_it_last_did_not_from_its_start() {
    let mut scene = Scene::new(2);
    scene.quiet.insert(SessionId(2), Timestamp(9 * MINUTE));
    scene.world.now = 8 * MINUTE;
    let message = scene.prompt(1);
    let cancelled = queue::cancel(&scene.world.pool, message, Timestamp(8 * MINUTE)).unwrap();
    scene.world.emit_all(cancelled);
    let idle = |scene: &Scene, now: u64| {
        let (inputs, settings) = (
            EvictionInputs { now: Timestamp(now), ..scene.inputs() },
            Settings { idle_timeout: Some(Duration::from_secs(300)), ..settings() },
        );
        let ids: Vec<u64> =
            slots::past_idle_timeout(&scene.world.pool, &settings, &inputs).map(|id| id.0).collect();
        ids
    };
    assert_eq!(idle(&scene, 13 * MINUTE - 1), [0; 0]);
    assert_eq!(idle(&scene, 13 * MINUTE), [1], "it was sent something at 8");
    assert_eq!(idle(&scene, 14 * MINUTE), [1, 2]);
    scene.policy(1, Policy { idle_timeout_ms: Some(u64::MAX), ..Policy::default() });
    scene.policy(2, Policy { idle_timeout_ms: Some(30 * MINUTE), ..Policy::default() });
    assert_eq!(idle(&scene, 38 * MINUTE), [0; 0]);
    assert_eq!(idle(&scene, 39 * MINUTE), [2]);
}

#[test]
fn what_was_only_just_woken_stays_until_it_was_given_something() {
    let mut scene = Scene::new(1);
    scene.world.now = 29_999;
    assert_eq!(scene.victim(), None);
    let tag = scene.world.pool.session(SessionId(1)).unwrap().incarnation.as_ref().unwrap().tag;
    scene.worked.insert(tag, Timestamp(27_000));
    assert_eq!(scene.victim(), None, "it may not even have read it");
    scene.worked.insert(tag, Timestamp(26_999));
    assert_eq!(scene.victim(), Some(1));
    scene.worked.clear();
    scene.world.now = 30_000;
    assert_eq!(scene.victim(), Some(1));
}

#[test]
fn what_has_had_its_turn_yields_between_two_messages() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.prompt(1);
    scene.world.now = 10 * MINUTE - 1;
    assert_eq!(scene.victim(), None);
    scene.world.now = 10 * MINUTE;
    assert_eq!(scene.victim(), Some(1));
    scene.lock(1);
    assert_eq!((scene.victim(), scene.give_way()), (None, 0), "a user holds its lock");
    scene.change(1, |s| s.lock = None);
    scene.type_into(1);
    assert_eq!((scene.victim(), scene.give_way()), (None, 1), "not within one");
}

#[test]
fn what_is_not_parked_at_rest_goes_on_with_its_queue() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.world.now = 20 * MINUTE;
    scene.busy.insert(SessionId(1));
    assert_eq!((scene.victim(), scene.give_way()), (None, 0), "its parking is put off");
    scene.busy.clear();
    let tag = scene.world.pool.session(SessionId(1)).unwrap().tag().unwrap();
    scene.touched.insert(tag);
    scene.change(1, |s| s.conversation = Some(Conversation { id: "talk".to_owned(), begun: false }));
    assert_eq!((scene.victim(), scene.give_way()), (None, 0), "only a person spoke to it");
    scene.touched.clear();
    assert_eq!(scene.victim(), Some(1));
    let asked = asked(SessionId(1), "summarize");
    let op = OpId::Named("one".to_owned());
    let id = send(&mut scene.world, &QueueRules::default(), &asked, &op).unwrap();
    let open = scene.world.pool.pending_message(SessionId(1), id).unwrap();
    let claimed = queue::transition(&open, MessageState::Claimed, None, Timestamp(scene.world.now));
    scene.world.emit(claimed);
    scene.world.now += MINUTE;
    assert_eq!((scene.victim(), scene.give_way()), (None, 0), "a worker has a message of it");
}

#[test]
fn c11_what_only_a_person_spoke_to_is_put_aside_neither_for_another_nor_by_its_time_out() {
    let mut scene = Scene::new(1);
    scene.world.now = 5 * MINUTE;
    let tag = scene.world.pool.session(SessionId(1)).unwrap().tag().unwrap();
    let settings = Settings { idle_timeout: Some(Duration::from_secs(60)), ..settings() };
    for (attended, begun, goes) in [(true, false, false), (true, true, true), (false, false, true)] {
        scene.touched = attended.then_some(tag).into_iter().collect();
        scene.change(1, |s| s.conversation = Some(Conversation { id: "talk".to_owned(), begun }));
        let idle = slots::past_idle_timeout(&scene.world.pool, &settings, &scene.inputs()).count() == 1;
        assert_eq!((scene.victim().is_some(), idle), (goes, goes), "{attended} {begun}");
    }
}

#[test]
fn what_writes_without_a_pause_gives_way_for_a_quantum() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.world.now = 20 * MINUTE;
    scene.quiet.clear();
    let tag = scene.world.pool.session(SessionId(1)).unwrap().tag().unwrap();
    assert_eq!(scene.give_way(), 0, "since its start");
    for (given, ways) in [(19, 1), (11, 1), (10, 0)] {
        scene.worked.insert(tag, Timestamp(given * MINUTE));
        assert_eq!(scene.give_way(), ways, "{given}");
    }
    scene.does(1, (ActivityState::Busy, Source::Hook), None, 1000);
    assert_eq!(scene.give_way(), 1, "its agent says that it works");
}

#[test]
fn what_is_idle_is_put_aside_before_what_has_something_to_do() {
    let mut scene = Scene::new(2);
    scene.prompt(1);
    scene.world.now = 30 * MINUTE;
    scene.change(2, |s| s.last_activity_at = Timestamp(20 * MINUTE));
    assert_eq!(scene.victim(), Some(2), "although the other one started before that");
    scene.change(1, |s| s.policy.ephemeral = true);
    assert_eq!(scene.victim(), Some(2), "whatever the other one is");
    scene.lock(2);
    assert_eq!(scene.victim(), Some(1));
}

#[test]
fn park_is_refused_where_something_would_be_cut_off() {
    let mut scene = Scene::new(1);
    let park = |scene: &Scene, force: bool| {
        let session = scene.world.pool.session(SessionId(1)).unwrap();
        session::park(&scene.world.pool, session, force).map_err(|refusal| refusal.code)
    };
    let ends = |events: Vec<Event>| match events.as_slice() {
        [] => None,
        [Event::SessionDraining { reason, .. }] => Some(*reason),
        other => panic!("{other:?}"),
    };
    assert_eq!(park(&scene, false).map(ends), Ok(Some(Reason::Parked)));
    scene.change(1, |s| s.attached_clients = 1);
    assert_eq!(park(&scene, false), Err(ErrorCode::Conflict));
    assert_eq!(park(&scene, true).map(ends), Ok(Some(Reason::Parked)));
    scene.change(1, |s| s.attached_clients = 0);
    scene.prompt(1);
    assert_eq!(park(&scene, false), Err(ErrorCode::Conflict));
    assert_eq!(park(&scene, true).map(ends), Ok(Some(Reason::Parked)));
    for (lifecycle, reason, expected) in [
        (Lifecycle::Parked, Reason::Idle, Ok(None)),
        (Lifecycle::Draining, Reason::Evicted, Ok(None)),
        (Lifecycle::Draining, Reason::Killed, Err(ErrorCode::Conflict)),
        (Lifecycle::Starting, Reason::Restarted, Err(ErrorCode::Conflict)),
        (Lifecycle::Stopped, Reason::Exited, Err(ErrorCode::Refused)),
        (Lifecycle::Failed, Reason::Setup, Err(ErrorCode::Refused)),
        (Lifecycle::Lost, Reason::ServerGone, Err(ErrorCode::Refused)),
    ] {
        scene.is(1, lifecycle, reason);
        assert_eq!(park(&scene, true).map(ends), expected, "{lifecycle:?} {reason:?}");
    }
    scene.is(1, Lifecycle::Live, Reason::Exited);
    scene.change(1, |s| s.incarnation.as_mut().unwrap().agent = s.incarnation.as_ref().unwrap().init);
    assert_eq!(park(&scene, true), Err(ErrorCode::Refused), "what was adopted cannot be started again");
}

#[test]
fn drain_takes_no_more_and_ends_when_all_is_worked() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    let session = |scene: &Scene| scene.world.pool.session(SessionId(1)).unwrap().clone();
    let drained = session::drain(&scene.world.pool, &session(&scene), None).unwrap();
    scene.world.emit_all(drained);
    assert_eq!(session::drain(&scene.world.pool, &session(&scene), None), Ok(vec![]));
    assert_eq!(send_prompt(&mut scene.world, SessionId(1)), Err(ErrorCode::Refused));
    assert!(!session::is_drained(&scene.world.pool, &session(&scene)));
    scene.type_into(1);
    assert!(!session::is_drained(&scene.world.pool, &session(&scene)), "in flight");
    let open = scene.world.pool.held_messages().next().unwrap();
    let done = queue::transition(&open, MessageState::Done, None, Timestamp(1));
    scene.world.emit(done);
    assert!(session::is_drained(&scene.world.pool, &session(&scene)));
}

#[test]
fn drain_and_kill_end_what_was_to_start_again_and_lose_no_message() {
    for (lifecycle, reason) in [
        (Lifecycle::Stopped, Reason::Exited),
        (Lifecycle::Stopped, Reason::Restarted),
        (Lifecycle::Failed, Reason::TmuxFailed),
        (Lifecycle::Lost, Reason::ServerGone),
    ] {
        let mut scene = Scene::new(1);
        scene.is(1, lifecycle, reason);
        scene.change(1, |s| s.budget.due_at = Some(Timestamp(99)));
        let session = scene.world.pool.session(SessionId(1)).unwrap();
        for (events, reason) in [
            (session::kill(session), Reason::Killed),
            (session::drain(&scene.world.pool, session, None).unwrap(), Reason::Drained),
        ] {
            let mut after = scene.world.pool.clone();
            let stamp = |event| Stamped { seq: Seq(1), at: Timestamp(5), event };
            events.into_iter().map(stamp).for_each(|stamped| after.apply(&stamped));
            let session = after.session(SessionId(1)).unwrap();
            assert_eq!((session.lifecycle, session.reason), (Lifecycle::Stopped, Some(reason)));
            assert_eq!(session.budget.due_at, None, "{lifecycle:?}");
        }
        scene.prompt(1);
        let session = scene.world.pool.session(SessionId(1)).unwrap();
        let refused = session::drain(&scene.world.pool, session, None).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Refused, "{lifecycle:?}");
    }
    let mut scene = Scene::new(1);
    scene.is(1, Lifecycle::Draining, Reason::Evicted);
    let session = scene.world.pool.session(SessionId(1)).unwrap();
    assert_eq!(session::drain(&scene.world.pool, session, None).unwrap_err().code, ErrorCode::Conflict);
}

#[test]
fn those_who_wait_longest_are_woken_first_and_nobody_who_does_not_wait() {
    let mut scene = Scene::new(4);
    for (id, at) in [(3, 100), (1, 200), (2, 300)] {
        scene.world.now = at;
        scene.prompt(id);
    }
    for (id, lifecycle) in
        [(1, Lifecycle::Parked), (2, Lifecycle::Parked), (3, Lifecycle::Parked), (4, Lifecycle::Parked)]
    {
        scene.is(id, lifecycle, Reason::Idle);
    }
    // Parked between two messages, the session is behind those that waited meanwhile.
    scene.change(3, |s| s.changed_at = Timestamp(250));
    let other = OsBytes::from("for a worker");
    let observation = protocol::request::Send { body: other, ..asked(SessionId(4), "observation") };
    send(&mut scene.world, &QueueRules::default(), &observation, &OpId::Named("o".into())).unwrap();
    let wanting: Vec<u64> =
        slots::wanting_start(&scene.world.pool, Timestamp(400)).iter().map(|id| id.0).collect();
    assert_eq!(wanting, [1, 3, 2]);
    assert_eq!(asked(SessionId(4), PROMPT).kind, PROMPT);
}

#[test]
fn a_wake_is_use_and_never_too_many() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    for at in (0..100).map(|n| 1000 * n) {
        assert_eq!(scene.wanting(at), [1]);
        let session = scene.world.pool.session(SessionId(1)).unwrap();
        let spent = session::spend_restart(&scene.world.pool, &settings(), session, Timestamp(at));
        scene.world.emit(spent);
    }
    // A session that ended by itself is no such case.
    scene.is(1, Lifecycle::Stopped, Reason::Exited);
    let session = scene.world.pool.session(SessionId(1)).unwrap();
    let spent = session::spend_restart(&scene.world.pool, &settings(), session, Timestamp(99_000));
    let Event::BudgetChanged { budget, .. } = spent else { panic!("{spent:?}") };
    assert_eq!(budget.starts, [Timestamp(99_000)]);
}

#[test]
fn what_was_lost_is_started_one_after_the_other() {
    let mut scene = Scene::new(3);
    for id in [1, 3] {
        scene.is(id, Lifecycle::Lost, Reason::ServerGone);
        scene.change(id, |s| s.budget.exhausted = true);
    }
    let events = session::restore_all(&scene.world.pool, Duration::from_secs(5), Timestamp(1000));
    scene.world.emit_all(events);
    let wanting = |now: u64| slots::wanting_start(&scene.world.pool, Timestamp(now));
    assert_eq!(wanting(1000), [SessionId(1)]);
    assert_eq!(wanting(6000), [SessionId(1), SessionId(3)]);
}

#[test]
fn what_was_kept_from_being_restored_is_started_by_the_next_restore() {
    for (incarnations, reason, is_started) in [
        (2, Reason::TmuxFailed, true),
        (2, Reason::NameTaken, true),
        (2, Reason::Setup, true),
        (2, Reason::ExecFailed, false),
        (1, Reason::TmuxFailed, false),
        (1, Reason::Setup, false),
    ] {
        let mut scene = Scene::new(1);
        scene.is(1, Lifecycle::Failed, reason);
        scene.change(1, |s| s.incarnations = incarnations);
        let events = session::restore_all(&scene.world.pool, Duration::from_secs(5), Timestamp(1000));
        assert_eq!(events.len(), usize::from(is_started), "{incarnations} {reason:?}");
        scene.world.emit_all(events);
        let wanted = slots::wanting_start(&scene.world.pool, Timestamp(1000));
        assert_eq!(wanted == [SessionId(1)], is_started, "{incarnations} {reason:?}");
    }
}

#[test]
fn what_goes_when_its_time_is_up() {
    use Lifecycle::{Failed, Live, Lost, Parked, Stopped};
    let hour = Some(60 * MINUTE);
    let ttl = |ttl_ms| Policy { ttl_ms, ..Policy::default() };
    let ephemeral = Policy { ephemeral: true, ..Policy::default() };
    // Ended sessions are kept for two hours by configuration.
    for (lifecycle, policy, from) in [
        (Stopped, Policy::default(), Some(120 * MINUTE)),
        (Failed, Policy::default(), Some(120 * MINUTE)),
        (Stopped, ttl(hour), hour),
        (Stopped, ttl(Some(u64::MAX)), None),
        (Parked, Policy::default(), None),
        (Lost, Policy::default(), None),
        (Parked, ttl(hour), hour),
        (Lost, ttl(hour), hour),
        (Parked, ttl(Some(u64::MAX)), None),
        (Live, ttl(hour), None),
        (Stopped, ephemeral.clone(), Some(10_000)),
        (Failed, ephemeral.clone(), Some(10_000)),
        (Lost, ephemeral, None),
    ] {
        let mut scene = Scene::new(1);
        scene.is(1, lifecycle, Reason::Exited);
        scene.policy(1, policy.clone());
        let gone = |scene: &Scene, now: u64| {
            let keep = Some(Duration::from_millis(120 * MINUTE));
            session::past_retention(&scene.world.pool, &crate::world::settings(), keep, Timestamp(now))
                .count()
                == 1
        };
        let found = (gone(&scene, from.unwrap_or(1) - 1), gone(&scene, from.unwrap_or(u64::MAX)));
        assert_eq!(found, (false, from.is_some()), "{lifecycle:?} {policy:?}");
        scene.change(1, |s| s.budget.due_at = Some(Timestamp(1)));
        assert!(!gone(&scene, u64::MAX), "it is to start again");
        scene.change(1, |s| s.budget.due_at = None);
        assert_eq!(gone(&scene, u64::MAX), from.is_some());
        scene.lock(1);
        assert!(!gone(&scene, u64::MAX), "a user holds its lock");
        scene.change(1, |s| s.lock = None);
        scene.change(1, |s| s.policy.pinned = true);
        assert!(!gone(&scene, u64::MAX), "it is pinned");
        scene.change(1, |s| s.policy.pinned = false);
        if matches!(lifecycle, Parked | Lost) {
            scene.prompt(1);
            assert!(!gone(&scene, u64::MAX), "it has something to work");
        }
    }
}

#[test]
fn an_ephemeral_session_is_kept_an_hour_for_what_a_worker_has_to_work() {
    let mut scene = Scene::new(1);
    let (op, asked) = (OpId::Named("one".to_owned()), asked(SessionId(1), "summarize"));
    let id = send(&mut scene.world, &QueueRules::default(), &asked, &op).unwrap();
    scene.is(1, Lifecycle::Stopped, Reason::Exited);
    scene.policy(1, Policy { ephemeral: true, ..Policy::default() });
    let goes = |scene: &Scene, now: u64| {
        session::past_retention(&scene.world.pool, &crate::world::settings(), None, Timestamp(now)).count()
            == 1
    };
    assert_eq!([3_599_999, 3_600_000].map(|now| goes(&scene, now)), [false, true]);
    let open = scene.world.pool.pending_message(SessionId(1), id).unwrap();
    let done = pool::queue::transition(&open, MessageState::Done, None, Timestamp(1));
    scene.world.emit(done);
    assert!(goes(&scene, 10_000), "it is worked");
}

#[test]
fn a_pin_is_one_event_and_the_same_again_is_none() {
    let mut scene = Scene::new(1);
    let pin = |scene: &Scene, pinned| session::pin(scene.world.pool.session(SessionId(1)).unwrap(), pinned);
    assert_eq!(pin(&scene, false), None);
    let event = pin(&scene, true).unwrap();
    scene.world.emit(event);
    assert_eq!(pin(&scene, true), None);
    assert!(scene.world.pool.session(SessionId(1)).unwrap().policy.pinned);
}

/// True if a session that has been silent for long is parked, by its agent's activity.
fn gives_way(does: (ActivityState, Source), asks: Option<AskKind>) -> bool {
    let mut scene = Scene::new(1);
    scene.does(1, does, asks, 1000);
    scene.world.now = 5 * MINUTE;
    let idle_timeout = Some(Duration::from_secs(60));
    let settings = Settings { idle_timeout, ..settings() };
    let parks = slots::past_idle_timeout(&scene.world.pool, &settings, &scene.inputs()).count() == 1;
    assert_eq!(parks, scene.victim().is_some(), "by the same evidence");
    parks
}

#[test]
fn c11_who_works_or_waits_for_a_person_by_its_own_word_is_never_put_aside() {
    use ActivityState::{Attention, Busy, Error, Idle, Unknown};
    use Source::{Hook, Nothing, Output, Process, Queue, Screen, Terminal, Transcript};
    for source in [Hook, Transcript, Terminal, Process, Output, Screen, Queue, Nothing] {
        let told = matches!(source, Hook | Transcript);
        assert_eq!(gives_way((Busy, source), None), !told, "{source:?}: silence says more than a guess");
        for kind in [AskKind::Permission, AskKind::Question, AskKind::Dialog, AskKind::Message] {
            assert!(!gives_way((Attention, source), Some(kind)), "{source:?} {kind:?}");
        }
        assert!(gives_way((Attention, source), Some(AskKind::Bell)), "{source:?}");
        for state in [Idle, Error, Unknown] {
            assert!(gives_way((state, source), None), "{source:?} {state:?}");
        }
    }
}

#[test]
fn c11_what_went_to_work_after_its_parking_was_decided_is_not_hung_up() {
    use ActivityState::{Attention, Busy, Idle};
    let hung_up = |scene: &Scene| {
        let tag = scene.world.pool.session(SessionId(1)).unwrap().tag().unwrap();
        let run = slots::run_to_hang_up(&scene.world.pool, (SessionId(1), tag), Timestamp(1000));
        run.map(|run| run.is_some_and(|run| run.tag == tag))
    };
    let at_work = Err("it went to work meanwhile");
    // Its screen is looked at before. A report of before the decision may be learnt after it.
    for (reason, reported, expected) in [
        (Reason::Idle, None, Ok(true)),
        (Reason::Idle, Some((Busy, Source::Hook, 501)), at_work),
        (Reason::Idle, Some((Attention, Source::Hook, 501)), at_work),
        (Reason::Idle, Some((Busy, Source::Transcript, 501)), at_work),
        (Reason::Idle, Some((Idle, Source::Hook, 501)), Ok(true)),
        (Reason::Idle, Some((Busy, Source::Screen, 501)), Ok(true)),
        // A rule of the reaper may end a working agent.
        (Reason::Idle, Some((Busy, Source::Hook, 499)), Ok(true)),
        (Reason::Evicted, Some((Busy, Source::Hook, 499)), at_work),
        (Reason::Evicted, Some((Idle, Source::Hook, 501)), Ok(true)),
        (Reason::Parked, Some((Busy, Source::Hook, 499)), Ok(true)),
        (Reason::Parked, Some((Busy, Source::Hook, 501)), at_work),
        (Reason::Limited, Some((Busy, Source::Hook, 499)), Ok(true)),
    ] {
        let mut scene = Scene::new(1);
        scene.is(1, Lifecycle::Draining, reason);
        scene.change(1, |s| s.changed_at = Timestamp(500));
        if let Some((state, source, since)) = reported {
            scene.does(1, (state, source), None, since);
        }
        assert_eq!(hung_up(&scene), expected, "{reason:?} {reported:?}");
    }
    for (lifecycle, reason, expected) in [
        (Lifecycle::Draining, Reason::Limited, Ok(true)),
        (Lifecycle::Draining, Reason::Killed, Ok(false)),
        (Lifecycle::Draining, Reason::Restarted, Err("it was restarted meanwhile")),
        (Lifecycle::Live, Reason::Idle, Err("it runs on")),
        (Lifecycle::Parked, Reason::Idle, Ok(false)),
    ] {
        let mut scene = Scene::new(1);
        scene.is(1, lifecycle, reason);
        assert_eq!(hung_up(&scene), expected, "{lifecycle:?} {reason:?}");
        let other = (SessionId(1), Tag([9; 16]));
        let restarted = slots::run_to_hang_up(&scene.world.pool, other, Timestamp(1000));
        assert_eq!(restarted, Err("it was restarted meanwhile"), "{lifecycle:?} {reason:?}");
    }
}

#[test]
fn c11_who_says_that_it_is_idle_is_so_at_once() {
    let mut scene = Scene::new(1);
    scene.world.now = 5 * MINUTE;
    let tag = scene.world.pool.session(SessionId(1)).unwrap().incarnation.as_ref().unwrap().tag;
    scene.worked.insert(tag, Timestamp(5 * MINUTE - 10));
    let since = |scene: &Scene| {
        let session = scene.world.pool.session(SessionId(1)).unwrap();
        let found = slots::evictable(&scene.world.pool, &settings(), session, &scene.inputs()).ok();
        found.map(|found| found.since)
    };
    for quiet in [None, Some(Timestamp(5 * MINUTE))] {
        scene.quiet.clear();
        scene.quiet.extend(quiet.map(|at| (SessionId(1), at)));
        scene.does(1, (ActivityState::Idle, Source::Output), None, 0);
        assert_eq!(since(&scene), None, "nothing but its silence tells");
        scene.does(1, (ActivityState::Idle, Source::Hook), None, 5 * MINUTE - 1);
        assert_eq!(since(&scene), Some(Timestamp(5 * MINUTE - 1)), "it redraws its clock as it likes");
    }
    scene.change(1, |s| s.last_activity_at = Timestamp(5 * MINUTE));
    assert_eq!(since(&scene), Some(Timestamp(5 * MINUTE)), "it was only just sent something");
}

#[test]
fn what_has_had_its_turn_does_not_yield_within_one_that_goes_on() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.world.now = 10 * MINUTE;
    scene.does(1, (ActivityState::Busy, Source::Hook), None, 1000);
    assert_eq!(scene.victim(), None, "its user typed something");
    scene.does(1, (ActivityState::Idle, Source::Hook), None, 10 * MINUTE);
    assert_eq!(scene.victim(), Some(1));
}

#[test]
fn a_prompt_whose_time_has_not_come_wakes_nobody_and_does_when_it_has() {
    let mut scene = Scene::new(1);
    scene.world.now = 1000;
    let message = scene.prompt_at(1, 90_000);
    assert_eq!((scene.wanting(1000), scene.next_start(1000)), (vec![], None), "it runs");
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    assert_eq!((scene.wanting(89_999), scene.next_start(89_999)), (vec![], Some(90_000)));
    assert_eq!((scene.wanting(90_000), scene.next_start(90_000)), (vec![1], None));
    assert_eq!(scene.wanting(999), [1], "the clock went back: nobody waits for a time that may never come");
    // A prompt that is not due blocks those behind it; a more urgent one does not wait.
    scene.is(1, Lifecycle::Live, Reason::Idle);
    scene.prompt(1);
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    assert_eq!((scene.wanting(2000), scene.next_start(2000)), (vec![], Some(90_000)));
    let now = queue::retry(&scene.world.pool, &QueueRules::default(), message, Timestamp(2000)).unwrap();
    scene.world.emit_all(now);
    assert_eq!((scene.wanting(2000), scene.next_start(2000)), (vec![1], None));
}

#[test]
fn an_agent_is_about_to_get_what_waits_behind_a_prompt_that_is_not_due() {
    let mut scene = Scene::new(1);
    scene.world.now = 1000;
    let has_work =
        |scene: &Scene, now| queue::has_prompt_work(&scene.world.pool, SessionId(1), Timestamp(now));
    assert!(!has_work(&scene, 1000));
    scene.prompt_at(1, 90_000);
    assert!(
        !has_work(&scene, 1000) && has_work(&scene, 90_000),
        "such as the words to go on after a usage limit"
    );
    scene.prompt(1);
    assert!(has_work(&scene, 1000), "who sent this one waits for its end");
}

#[test]
fn nobody_is_woken_for_what_waits_behind_a_prompt_in_doubt() {
    let mut scene = Scene::new(1);
    scene.prompt(1);
    scene.prompt_at(1, 90_000);
    scene.type_into(1);
    assert_eq!(
        queue::doubt_cut_off(&scene.world.pool, &QueueRules::default(), |_| true, Timestamp(1)),
        [],
        "somebody is at it"
    );
    let doubt = queue::doubt_cut_off(&scene.world.pool, &QueueRules::default(), |_| false, Timestamp(1));
    scene.world.emit_all(doubt);
    scene.is(1, Lifecycle::Parked, Reason::Evicted);
    for now in [2000, 90_000, 100_000] {
        assert_eq!((scene.wanting(now), scene.next_start(now)), (vec![], None));
    }
    let held = queue::held_prompt(&scene.world.pool, SessionId(1)).unwrap();
    let over = queue::transition(&held, MessageState::Done, None, Timestamp(2));
    scene.world.emit(over);
    assert_eq!((scene.wanting(2000), scene.next_start(2000)), (vec![], Some(90_000)));
    assert_eq!(queue::held_prompt(&scene.world.pool, SessionId(1)), None);
}

#[test]
fn nobody_is_woken_whose_agent_has_used_up_what_it_may() {
    let mut scene = Scene::new(1);
    let limited = |scene: &mut Scene, until: u64| {
        let session = SessionId(1);
        let tag = scene.world.pool.session(session).unwrap().incarnation.as_ref().map(|run| run.tag);
        let (state, limited_until) = (ActivityState::Error, Some(Timestamp(until)));
        let activity = Activity { state, source: Source::Hook, limited_until, tag, ..Activity::default() };
        scene.world.emit(Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: true }));
    };
    limited(&mut scene, 90_000);
    scene.prompt(1);
    scene.is(1, Lifecycle::Parked, Reason::Limited);
    assert_eq!((scene.wanting(1000), scene.next_start(1000)), (vec![], Some(90_000)));
    assert_eq!((scene.wanting(90_000), scene.next_start(90_000)), (vec![1], None));
    // Both the prompt's time and the end of the usage limit are waited for.
    for (prompt, until, both) in [(95_000, 120_000, 120_000), (200_000, 150_000, 200_000)] {
        let mut scene = Scene::new(1);
        limited(&mut scene, until);
        scene.prompt_at(1, prompt);
        scene.is(1, Lifecycle::Parked, Reason::Limited);
        assert_eq!((scene.wanting(both - 1), scene.next_start(1000)), (vec![], Some(both)));
        assert_eq!(scene.wanting(both), [1]);
    }
}
