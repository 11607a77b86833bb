//! The action on a violated rule: where it is set, and what follows.

use std::time::Duration;

use pool::reap::{Decision, SESSION_RULES};
use pool::{Agent, RestartRules, reap, session, slots};
use protocol::policy::Budget;
use protocol::reap::{Action, Rule};
use protocol::{Event, Lifecycle, Reason, Timestamp};

use super::{MINUTE, ONE, START, Scene};

const MINUTES_30: Timestamp = Timestamp(START + 30 * MINUTE);

fn decide(scene: &Scene, rule: Rule, now: Timestamp) -> Decision {
    reap::decide(&scene.world.pool, &scene.settings, scene.session(), (rule, "because".to_owned()), now)
}

fn says(scene: &mut Scene, rule: Rule, action: Action) {
    scene.change(|s| s.policy.reap = [(rule, action)].into());
}

fn draining(events: &[Event]) -> Option<Reason> {
    events.iter().find_map(|event| match event {
        Event::SessionDraining { session: ONE, reason, .. } => Some(*reason),
        _ => None,
    })
}

#[test]
fn nobodys_quiet_work_is_ended_by_default() {
    let scene = Scene::new();
    let all: Vec<(Rule, Action)> = Rule::ALL.into_iter().map(|rule| (rule, scene.action(rule).0)).collect();
    let kill = [
        Rule::ZombiePane,
        Rule::StaleWorker,
        Rule::Memory,
        Rule::Disk,
        Rule::RunTime,
        Rule::Leftovers,
        Rule::Orphans,
        Rule::StaleClient,
    ];
    let expected = Rule::ALL.map(|rule| match rule {
        Rule::StaleAgent => (rule, Action::Restart),
        Rule::Hung | Rule::IdleSession | Rule::HostMemory | Rule::HostDisk => (rule, Action::Report),
        rule => {
            assert!(kill.contains(&rule));
            (rule, Action::Kill)
        }
    });
    assert_eq!(all, expected);
    assert!(Rule::ALL.into_iter().all(|rule| scene.action(rule).1 == "default"));
    let mut scene = Scene::new();
    scene.change(|s| s.spec.resume_args.clear());
    assert_eq!(scene.action(Rule::StaleAgent).0, Action::Report, "it could not take up where it was");
    let nobodys = reap::rule_action(&scene.settings, None, Rule::Orphans);
    assert_eq!(nobodys, (Action::Kill, "default"));
}

#[test]
fn a_session_says_more_than_its_agent_and_that_more_than_the_configuration() {
    for rule in SESSION_RULES {
        let mut scene = Scene::new();
        let other = if rule == Rule::Hung { Rule::Memory } else { Rule::Hung };
        scene.settings.reap.actions = [(rule, Action::Park)].into();
        assert_eq!(scene.action(rule), (Action::Park, "configuration"));
        assert_eq!(scene.action(other).1, "default");
        let kind = |action| Agent { reap: [(rule, action)].into(), ..Agent::default() };
        scene.settings.agents.insert("other".to_owned(), kind(Action::Kill));
        assert_eq!(scene.action(rule), (Action::Park, "configuration"), "another kind says so");
        scene.settings.agents.insert("command".to_owned(), kind(Action::Restart));
        assert_eq!(scene.action(rule), (Action::Restart, "agent"));
        says(&mut scene, other, Action::Park);
        assert_eq!(scene.action(rule), (Action::Restart, "agent"), "the session says nothing of this one");
        says(&mut scene, rule, Action::Report);
        assert_eq!(scene.action(rule), (Action::Report, "session"));
        assert_eq!(reap::rule_action(&scene.settings, None, rule), (Action::Park, "configuration"));
    }
}

#[test]
fn g13_each_rule_ends_a_session_for_a_reason_of_its_own() {
    let reasons = SESSION_RULES.map(|rule| {
        let mut scene = Scene::new();
        says(&mut scene, rule, Action::Kill);
        let decision = decide(&scene, rule, MINUTES_30);
        let evidence = "because".to_owned();
        let found = Event::StaleFound { session: ONE, rule, action: Action::Kill, evidence };
        assert_eq!((decision.action, decision.events.len(), &decision.events[0]), (Action::Kill, 2, &found));
        let reason = draining(&decision.events).unwrap();
        assert_eq!(reason, reap::end_reason(rule));
        scene.world.emit_all(decision.events);
        assert_eq!((scene.session().lifecycle, scene.session().reason), (Lifecycle::Draining, Some(reason)));
        assert!(!scene.applies(rule, MINUTES_30), "and it is not found again");
        reason
    });
    use Reason::{DiskLimit, Hung, MemoryLimit, RunTime, StaleAgent, TooIdle};
    assert_eq!(reasons, [DiskLimit, MemoryLimit, RunTime, StaleAgent, Hung, TooIdle]);
    assert!(reasons.into_iter().all(|reason| !reason.parks()));
}

#[test]
fn a_report_and_a_park_change_nothing_by_themselves() {
    for action in [Action::Report, Action::Park] {
        let (mut scene, at) = Scene::of(Rule::Hung);
        says(&mut scene, Rule::Hung, action);
        let decision = decide(&scene, Rule::Hung, at);
        assert_eq!((decision.action, decision.events.len()), (action, 1));
        let before = scene.session().clone();
        scene.world.emit_all(decision.events);
        assert_eq!(*scene.session(), before);
    }
}

#[test]
fn a_restart_is_an_end_and_one_start_after_a_pause() {
    let mut scene = Scene::new();
    says(&mut scene, Rule::Hung, Action::Restart);
    let decision = decide(&scene, Rule::Hung, MINUTES_30);
    assert_eq!((decision.action, draining(&decision.events)), (Action::Restart, Some(Reason::Hung)));
    scene.world.now = MINUTES_30.0;
    scene.world.emit_all(decision.events);
    let due = scene.session().budget.due_at.unwrap();
    let pause = due.since(MINUTES_30);
    assert!((Duration::from_secs(1)..=Duration::from_millis(1200)).contains(&pause), "{pause:?}");
    let wanting = |scene: &Scene, now| slots::wanting_start(&scene.world.pool, now);
    assert_eq!(wanting(&scene, Timestamp(u64::MAX)), [], "not beside what is ending");
    scene.prompt();
    scene.world.emit(Event::SessionStopped { session: ONE, reason: Reason::Hung, exit: None });
    assert_eq!(
        session::decide_restarts(&scene.world.pool, &scene.settings, MINUTES_30),
        [],
        "nothing follows twice"
    );
    assert_eq!(wanting(&scene, Timestamp(due.0 - 1)), []);
    assert_eq!(wanting(&scene, due), [ONE]);
    let spent = session::spend_restart(&scene.world.pool, &scene.settings, scene.session(), due);
    scene.world.emit(spent);
    let tag = scene.world.tag();
    let next = session::NextRun { tag, now: due, conversation: "talk", fresh: false };
    let started = session::next_incarnation(scene.session(), next);
    scene.world.emit_all(started);
    let budget = &scene.session().budget;
    assert_eq!((budget.due_at, budget.starts.len(), budget.failures), (None, 1, 1));
    scene.world.emit(Event::SessionStopped { session: ONE, reason: Reason::Exited, exit: None });
    assert_eq!(wanting(&scene, Timestamp(u64::MAX)), [], "once");
}

#[test]
fn a_restart_too_many_is_reported() {
    let mut scene = Scene::new();
    scene.settings.restart = RestartRules { max: 2, ..RestartRules::default() };
    says(&mut scene, Rule::StaleAgent, Action::Restart);
    let starts = vec![Timestamp(START), Timestamp(START + 5 * MINUTE)];
    scene.change(|s| s.budget = Budget { starts, ..Budget::default() });
    let at = |minutes: u64| decide(&scene, Rule::StaleAgent, Timestamp(START + minutes * MINUTE));
    let decision = at(6);
    assert_eq!((decision.action, decision.events.len()), (Action::Report, 1));
    let Event::StaleFound { action: Action::Report, evidence, .. } = &decision.events[0] else { panic!() };
    assert!(evidence.starts_with("because; ") && evidence.contains("too often"), "{evidence}");
    assert_eq!(at(10).action, Action::Restart, "the window does not reach the first of them any more");
    // A kill is no start.
    scene.change(|s| s.policy.reap = [(Rule::StaleAgent, Action::Kill)].into());
    assert_eq!(decide(&scene, Rule::StaleAgent, Timestamp(START + 6 * MINUTE)).action, Action::Kill);
}

#[test]
fn what_ran_well_until_a_rule_ends_it_begins_its_pauses_anew() {
    for (ran, failures) in [(59_999, 4), (60_000, 1)] {
        let mut scene = Scene::new();
        says(&mut scene, Rule::Hung, Action::Restart);
        scene.change(|s| s.budget.failures = 3);
        let now = Timestamp(START + ran);
        let decision = decide(&scene, Rule::Hung, now);
        scene.world.emit_all(decision.events);
        let budget = &scene.session().budget;
        assert_eq!(budget.failures, failures, "{ran}");
        let pause = budget.due_at.unwrap().since(now).as_secs();
        assert_eq!(pause, if failures == 1 { 1 } else { pause.clamp(8, 9) });
    }
}

#[test]
fn what_was_adopted_is_neither_started_again_nor_put_aside() {
    for action in [Action::Restart, Action::Park, Action::Kill] {
        let mut scene = Scene::new();
        scene.adopt();
        says(&mut scene, Rule::Hung, action);
        let decision = decide(&scene, Rule::Hung, MINUTES_30);
        let ends = action == Action::Kill;
        assert_eq!(decision.action, if ends { Action::Kill } else { Action::Report });
        assert_eq!(draining(&decision.events).is_some(), ends);
    }
}

#[test]
fn p06_what_is_pinned_is_not_put_aside_by_any_rule() {
    for pinned in [false, true] {
        let (mut scene, at) = Scene::of(Rule::RunTime);
        says(&mut scene, Rule::RunTime, Action::Park);
        scene.change(|s| s.policy.pinned = pinned);
        let expected = if pinned { Action::Report } else { Action::Park };
        assert_eq!(decide(&scene, Rule::RunTime, at).action, expected);
    }
}
