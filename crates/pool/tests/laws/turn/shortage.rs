//! Sessions are parked while the machine is short of memory or disk space.

use pool::reap::{self, MachineUse, Share};
use pool::slots::Action as Scheduled;
use protocol::reap::{Action, Candidate, Rule};
use protocol::{Event, Lifecycle, Reason, SessionId, Tag};

use super::{Engine, MINUTE, ONE, THREE, TWO};
use crate::queue::send_prompt;

const ENOUGH: MachineUse = MachineUse { memory: share(50), memory_pressure: Some(0), disk: share(50) };
const OF_MEMORY: MachineUse = MachineUse { memory: share(91), ..ENOUGH };
const OF_DISK: MachineUse = MachineUse { disk: share(96), ..ENOUGH };

const fn share(percent: u64) -> Option<Share> {
    Some(Share { used: percent << 20, total: 100 << 20 })
}

impl Engine {
    /// Three sessions that have been idle, the second for longest; shortages park.
    fn idle_three() -> Self {
        let mut engine = Self::with_live(3);
        engine.settings.reap.actions =
            [(Rule::HostMemory, Action::Park), (Rule::HostDisk, Action::Park)].into();
        engine.pass(10 * MINUTE);
        let now = engine.world.now;
        engine.quiet(&[now - 2 * MINUTE, now - 4 * MINUTE, now - 3 * MINUTE]);
        engine
    }

    /// Takes a sample of the machine, and evaluates the rules.
    fn judge(&mut self, machine: MachineUse) -> (Vec<SessionId>, Vec<Event>) {
        self.pass(1);
        self.turn(|turn, settings| reap::note_machine(turn, settings, machine));
        let decide = |turn: &mut pool::Turn<'_>, settings: &pool::Settings| {
            reap::evaluate_rules(turn, settings, false)
        };
        let (parks, events) = self.turn(decide);
        (parks.into_iter().map(|(session, _): (SessionId, Tag)| session).collect(), events)
    }

    /// A session that is being parked is proved gone.
    fn gone(&mut self, id: SessionId) {
        let reason = self.session(id).reason.unwrap();
        self.is(id, Lifecycle::Parked, reason);
    }

    fn why_not(&mut self, id: SessionId, rule: Rule) -> String {
        let session = self.session(id).clone();
        let (verdict, _) = self.turn(|turn, settings| {
            reap::with_rule_inputs(turn.pool(), turn.volatile, turn.now(), |inputs| {
                reap::machine_verdict(turn.pool(), settings, &session, rule, inputs)
            })
        });
        assert!(!verdict.applies, "{verdict:?}");
        verdict.why
    }

    fn shortages(&mut self) -> Vec<(Rule, String, bool)> {
        self.turn(|turn, settings| reap::shortages(turn.pool(), turn.volatile, settings, turn.now())).0
    }
}

fn found(events: &[Event]) -> Vec<(SessionId, Rule, Action, &str)> {
    let found = events.iter().filter_map(|event| match event {
        Event::StaleFound { session, rule, action, evidence } => {
            Some((*session, *rule, *action, &**evidence))
        }
        _ => None,
    });
    found.collect()
}

#[test]
fn g07_a_machine_that_runs_short_has_the_idlest_session_parked_with_its_figures() {
    for (short, rule, reason, figures) in [
        (
            OF_MEMORY,
            Rule::HostMemory,
            Reason::HostMemory,
            "91 of 100 MiB of the machine's memory are in use (91%, limit 90%)",
        ),
        (
            OF_DISK,
            Rule::HostDisk,
            Reason::HostDisk,
            "96 of 100 MiB of the state directory's disk are in use (96%, limit 95%)",
        ),
    ] {
        let mut engine = Engine::idle_three();
        assert_eq!(engine.judge(ENOUGH), (vec![], vec![]));
        let (parks, events) = engine.judge(short);
        assert_eq!(parks, [TWO]);
        assert_eq!(found(&events), [(TWO, rule, Action::Park, figures)]);
        let session = engine.session(TWO);
        assert_eq!((session.lifecycle, session.reason), (Lifecycle::Draining, Some(reason)));
        assert!(
            engine.volatile.reaping.is_guarded(engine.tag(TWO)),
            "tmux has to show that no client is attached"
        );
        engine.volatile.reaping.end_guard(engine.tag(TWO));
        let (named, _): (Vec<Candidate>, _) = engine
            .turn(|turn, settings| reap::all_candidates(turn.pool(), turn.volatile, settings, turn.now()));
        assert_eq!((named.len(), named[0].rule, named[0].evidence.as_str()), (1, Some(rule), figures));
        assert_eq!(engine.shortages(), [(rule, figures.to_owned(), false)]);
    }
}

#[test]
fn g07_one_at_a_time_after_a_pause_and_a_sample_that_still_shows_the_shortage() {
    let mut engine = Engine::idle_three();
    assert_eq!(engine.judge(OF_MEMORY).0, [TWO]);
    engine.pass(10 * MINUTE);
    assert_eq!(engine.judge(OF_MEMORY).0, [], "not before the proof, however long that takes");
    assert!(engine.why_not(THREE, Rule::HostMemory).contains("sess_2 is just being parked for it"));
    assert_eq!(engine.judge(OF_DISK).0, [], "nor for another reason");
    engine.gone(TWO);
    engine.pass(29_000);
    assert_eq!(engine.judge(OF_MEMORY).0, [], "what it used may still come free");
    assert!(engine.why_not(THREE, Rule::HostMemory).contains("waits for 30 s"));
    engine.pass(1000);
    assert_eq!(engine.judge(ENOUGH).0, [], "it has");
    assert_eq!(engine.judge(OF_MEMORY).0, [THREE]);
    engine.gone(THREE);
    engine.pass(MINUTE);
    let (parks, _) = engine.turn(|turn, settings| reap::evaluate_rules(turn, settings, false));
    assert_eq!(parks, [], "the sample is older than the end");
    assert_eq!(engine.judge(OF_MEMORY).0, [ONE]);
}

#[test]
fn g07_who_would_lose_something_is_left_alone_and_that_is_told() {
    type Change = fn(&mut Engine, SessionId);
    let changes: [(&str, Change); 6] = [
        ("pinned", |engine, id| engine.change(id, |s| s.policy.pinned = true)),
        ("attached", |engine, id| engine.change(id, |s| s.attached_clients = 1)),
        ("lock", |engine, id| engine.lock(id, &[])),
        ("cannot resume", |engine, id| engine.change(id, |s| s.spec.resume_args.clear())),
        ("messages", |engine, id| assert!(send_prompt(&mut engine.world, id).is_ok())),
        ("a moment ago", |engine, id| {
            let now = engine.now();
            engine.change(id, |s| s.incarnation.as_mut().unwrap().started_at = now);
        }),
    ];
    for (why, change) in changes {
        let mut engine = Engine::idle_three();
        change(&mut engine, TWO);
        assert_eq!(engine.judge(OF_MEMORY).0, [THREE], "{why}");
        assert!(engine.why_not(TWO, Rule::HostMemory).contains(why), "{why}");
        let mut engine = Engine::idle_three();
        [ONE, TWO, THREE].into_iter().for_each(|id| change(&mut engine, id));
        assert_eq!(engine.judge(OF_MEMORY), (vec![], vec![]), "{why}");
        assert_eq!(
            engine.shortages().iter().map(|found| (found.0, found.2)).collect::<Vec<_>>(),
            [(Rule::HostMemory, true)]
        );
    }
}

#[test]
fn g07_a_session_that_works_between_two_messages_is_not_parked_for_the_machine() {
    let mut engine = Engine::idle_three();
    engine.pass(60 * MINUTE);
    let now = engine.world.now;
    engine.quiet(&[now - 2 * MINUTE, now - 4 * MINUTE, now - 3 * MINUTE]);
    for id in [ONE, TWO, THREE] {
        send_prompt(&mut engine.world, id).unwrap();
    }
    assert_eq!(engine.judge(OF_MEMORY).0, [], "although they would be for another session");
}

#[test]
fn g07_by_default_a_shortage_is_reported_once_and_a_session_may_say_otherwise() {
    let mut engine = Engine::idle_three();
    engine.settings.reap.actions.clear();
    let told = |(parks, events): (Vec<SessionId>, Vec<Event>)| {
        assert_eq!(parks, []);
        found(&events).into_iter().map(|(id, rule, action, _)| (id, rule, action)).collect::<Vec<_>>()
    };
    assert_eq!(told(engine.judge(OF_MEMORY)), [(TWO, Rule::HostMemory, Action::Report)]);
    assert_eq!(told(engine.judge(OF_MEMORY)), []);
    let nearly = MachineUse { memory: share(89), ..ENOUGH };
    assert_eq!(told(engine.judge(nearly)), [], "it is not over");
    assert_eq!(told(engine.judge(OF_MEMORY)), [], "so that it does not begin anew");
    assert!(!engine.shortages()[0].2, "nobody is to be parked");
    engine.change(ONE, |s| s.policy.reap = [(Rule::HostMemory, Action::Park)].into());
    assert_eq!(engine.judge(OF_MEMORY).0, [ONE], "of those that may be, although others are idler");
    assert_eq!(told(engine.judge(ENOUGH)), []);
    assert_eq!(engine.shortages(), []);
}

#[test]
fn g07_waits_for_memory_count_if_they_have_a_limit() {
    let waits = MachineUse { memory_pressure: Some(1250), ..ENOUGH };
    let mut engine = Engine::idle_three();
    assert_eq!(engine.judge(waits).0, []);
    engine.settings.reap.host_memory_pressure = Some(1000);
    let (parks, events) = engine.judge(waits);
    let why = "programs waited for memory during 12.5% of the last 10 s (limit 10%)";
    assert_eq!((parks, found(&events)), (vec![TWO], vec![(TWO, Rule::HostMemory, Action::Park, why)]));
}

#[test]
fn g07_without_a_limit_or_a_figure_nothing_is_short() {
    let mut engine = Engine::idle_three();
    assert!(engine.why_not(TWO, Rule::HostDisk).contains("not sampled yet"));
    assert_eq!(engine.judge(MachineUse::default()).0, []);
    assert!(engine.why_not(TWO, Rule::HostDisk).contains("does not tell"));
    (engine.settings.reap.host_memory, engine.settings.reap.host_disk) = (None, None);
    assert_eq!(
        engine.judge(MachineUse { memory: share(100), memory_pressure: Some(10_000), disk: share(100) }).0,
        []
    );
    assert!(engine.why_not(TWO, Rule::HostDisk).contains("no limit is set"));
    assert!(engine.why_not(TWO, Rule::HostMemory).contains("no limit is set"));
}

#[test]
fn g07_a_prompt_wakes_nobody_while_the_shortage_lasts() {
    let started = |engine: &mut Engine| {
        let (tick, _) = engine.tick();
        let start = |action| if let Scheduled::Start(session) = action { Some(session.id) } else { None };
        tick.actions.into_iter().filter_map(start).collect::<Vec<_>>()
    };
    let mut engine = Engine::idle_three();
    assert_eq!(engine.judge(OF_MEMORY).0, [TWO]);
    engine.gone(TWO);
    send_prompt(&mut engine.world, TWO).unwrap();
    engine.pass(1);
    assert_eq!(started(&mut engine), []);
    assert!(engine.volatile.scheduler.waiting.is_empty(), "it takes no place from those who may start");
    let held =
        |engine: &Engine| reap::held_by_shortage(&engine.volatile, &engine.settings, engine.session(TWO));
    assert!(held(&engine).unwrap().contains("91%"));
    // A start that a person asked for, or that the session's policy decides, is not held back.
    let now = engine.now();
    engine.change(TWO, |s| s.budget.due_at = Some(now));
    assert_eq!(started(&mut engine), [TWO]);
    engine.gone_again();
    engine.judge(ENOUGH);
    assert_eq!((held(&engine), started(&mut engine)), (None, vec![TWO]));
}

impl Engine {
    /// The second session is parked again, and no start of it is due.
    fn gone_again(&mut self) {
        self.change(TWO, |s| s.budget.due_at = None);
        self.volatile.scheduler.end_start(TWO);
        self.is(TWO, Lifecycle::Parked, Reason::HostMemory);
    }
}
