//! Evaluation of the reaper's rules.

use pool::deadlines::Mono;
use pool::reap::{self, ResourceUse};
use pool::slots::LossSource;
use protocol::reap::{Action, Candidate, Outcome, Rule};
use protocol::session::Conversation;
use protocol::{Event, Lifecycle, Reason, SessionId, Tag};

use super::{Engine, MINUTE, ONE, TWO};

impl Engine {
    /// Sessions that exceed their run time of a minute from now on.
    fn overdue(count: u32) -> Self {
        let mut engine = Self::with_live(count);
        for n in 1..=count {
            engine.change(SessionId(n.into()), |s| s.policy.max_runtime_ms = Some(MINUTE));
        }
        engine.pass(2 * MINUTE);
        engine
    }

    /// One session that has been idle for longer than allowed, and its agent can resume.
    fn idle() -> Self {
        let mut engine = Self::with_live(1);
        engine.pass(20 * MINUTE);
        engine.quiet(&[super::START]);
        engine
    }

    fn evaluate(&mut self, force: bool) -> (Vec<(SessionId, Tag)>, Vec<Event>) {
        self.turn(|turn, settings| reap::evaluate_rules(turn, settings, force))
    }

    fn ending(&self) -> Vec<SessionId> {
        let draining = self.world.pool.sessions().filter(|s| s.lifecycle == Lifecycle::Draining);
        draining.map(|s| s.id).collect()
    }

    fn candidates(&self) -> Vec<Candidate> {
        let now = (self.now(), Mono(self.world.now));
        reap::candidates(&self.world.pool, &self.volatile, &self.settings, now)
    }
}

/// The actions that were reported, with the rules.
fn found(events: &[Event]) -> Vec<(Rule, Action)> {
    let found = |event: &Event| match event {
        Event::StaleFound { rule, action, .. } => Some((*rule, *action)),
        _ => None,
    };
    events.iter().filter_map(found).collect()
}

#[test]
fn a_violated_limit_ends_the_session_with_its_figures_and_its_evidence() {
    let mut engine = Engine::overdue(1);
    let (parks, events) = engine.evaluate(false);
    let kinds: Vec<&str> = events.iter().map(|event| event.kind().as_str()).collect();
    assert_eq!((parks, kinds), (vec![], vec!["limit_exceeded", "stale_found", "session_draining"]));
    assert_eq!(engine.session(ONE).reason, Some(Reason::RunTime));
    let named = engine.candidates();
    assert_eq!((named.len(), named[0].rule), (1, Some(Rule::RunTime)));
    assert!(named[0].evidence.contains("it has run for 121 s"), "{}", named[0].evidence);
    assert_eq!(engine.evaluate(false), (vec![], vec![]), "it ends already");
}

#[test]
fn a_sample_from_before_the_last_client_left_ends_nothing() {
    let mut engine = Engine::with_live(1);
    engine.change(ONE, |s| (s.spec.limits.disk, s.attached_clients) = (Some(100), 1));
    let tag = engine.tag(ONE);
    let sample = |engine: &mut Engine| {
        let used = ResourceUse { disk: Some(200), ..ResourceUse::default() };
        engine.turn(|turn, _| turn.volatile.reaping.note_used(tag, used, turn.mono()));
        engine.evaluate(false);
    };
    sample(&mut engine);
    engine.pass(5000);
    engine.change(ONE, |s| s.attached_clients = 0);
    engine.evaluate(false);
    assert_eq!(engine.ending(), [], "a person may have cleaned up");
    sample(&mut engine);
    assert_eq!(engine.ending(), [ONE]);
}

#[test]
fn limits_hold_while_a_session_works_off_its_queue_and_end_it_for_good() {
    for action in [Action::Kill, Action::Restart, Action::Park] {
        let mut engine = Engine::overdue(1);
        engine.settings.reap.actions = [(Rule::RunTime, action)].into();
        engine.is(ONE, Lifecycle::Draining, Reason::Drained);
        assert_eq!(found(&engine.evaluate(false).1), [(Rule::RunTime, Action::Kill)]);
        assert_eq!(engine.session(ONE).reason, Some(Reason::DrainDeadline), "it is not to run again");
        let named = engine.candidates();
        assert_eq!((named.len(), named[0].rule), (1, None), "nor may anybody refuse its end");
    }
}

#[test]
fn a_park_that_is_deferred_counts_as_no_kill_and_is_not_told() {
    let mut engine = Engine::overdue(1);
    engine.settings.reap.actions = [(Rule::RunTime, Action::Park)].into();
    engine.settings.reap.max_kills_per_minute = 1;
    engine.change(ONE, |s| s.conversation = Some(Conversation { id: "talk".to_owned(), begun: true }));
    let (tag, now) = (engine.tag(ONE), engine.now());
    engine.volatile.scheduler.defer_parking((ONE, tag), LossSource::Screen, now);
    for _ in 0..3 {
        assert_eq!(engine.evaluate(false), (vec![], vec![]));
    }
    engine.pass(MINUTE);
    let (parks, events) = engine.evaluate(false);
    assert_eq!((parks, found(&events)), (vec![(ONE, tag)], vec![(Rule::RunTime, Action::Park)]));
}

#[test]
fn a_park_that_another_end_overtakes_guards_nothing() {
    let mut engine = Engine::overdue(1);
    let tag = engine.tag(ONE);
    engine.volatile.reaping.guard(tag);
    engine.is(ONE, Lifecycle::Draining, Reason::Parked);
    assert_eq!(engine.candidates(), []);
    engine.is(ONE, Lifecycle::Draining, Reason::Killed);
    assert_eq!(engine.candidates().len(), 1);
}

#[test]
fn the_limit_on_kills_holds_sessions_back_for_a_minute_unless_forced() {
    let mut engine = Engine::overdue(3);
    engine.settings.reap.max_kills_per_minute = 1;
    engine.evaluate(false);
    assert_eq!((engine.ending().len(), engine.volatile.reaping.held_back()), (1, 2));
    engine.pass(MINUTE - 1);
    engine.evaluate(false);
    assert_eq!(engine.ending().len(), 1, "within the same minute");
    engine.pass(1);
    engine.evaluate(false);
    assert_eq!((engine.ending().len(), engine.volatile.reaping.held_back()), (2, 1));
    engine.evaluate(true);
    assert_eq!((engine.ending().len(), engine.volatile.reaping.held_back()), (3, 0));
}

#[test]
fn what_survived_is_not_gone_because_it_is_ended_once_more() {
    let mut engine = Engine::overdue(1);
    engine.evaluate(false);
    let (candidate, tag) = (engine.candidates().remove(0), engine.tag(ONE));
    let settle = |engine: &mut Engine, outcome: Outcome| {
        engine.turn(|turn, _| reap::lease_settled(turn, &candidate, &outcome));
        engine.volatile.reaping.forget_verdict(tag);
        engine.volatile.reaping.has_survivors(tag)
    };
    let left = vec!["process 7.1 is still running".to_owned()];
    assert!(settle(&mut engine, Outcome::Survivors { left }));
    assert!(!settle(&mut engine, Outcome::Gone { killed: Vec::new() }));
}

#[test]
fn a_refused_kill_lets_the_session_live_and_is_not_repeated_within_a_minute() {
    let mut engine = Engine::overdue(1);
    engine.evaluate(false);
    let candidate = engine.candidates().remove(0);
    engine.turn(|turn, _| reap::lease_taken(turn, &candidate));
    let refused = Outcome::Refused { why: "a backup runs".to_owned() };
    engine.turn(|turn, _| reap::lease_settled(turn, &candidate, &refused));
    assert_eq!((engine.session(ONE).lifecycle, engine.candidates().len()), (Lifecycle::Live, 0));
    engine.pass(MINUTE - 1);
    engine.evaluate(false);
    assert_eq!(engine.ending(), []);
    engine.pass(1);
    engine.evaluate(false);
    assert_eq!(engine.ending(), [ONE]);
}

#[test]
fn a_violation_that_is_only_reported_is_reported_once_as_long_as_it_lasts() {
    let mut engine = Engine::idle();
    let report = [(Rule::IdleSession, Action::Report)];
    assert_eq!(found(&engine.evaluate(false).1), report);
    assert_eq!(found(&engine.evaluate(false).1), []);
    let now = engine.world.now;
    engine.quiet(&[now]);
    assert_eq!(found(&engine.evaluate(false).1), [], "it writes again");
    engine.quiet(&[super::START]);
    assert_eq!(found(&engine.evaluate(false).1), report, "and is idle again");
    assert_eq!(engine.session(ONE).lifecycle, Lifecycle::Live);
}

#[test]
fn a_session_that_only_a_person_spoke_to_is_not_parked() {
    for begun in [true, false] {
        let mut engine = Engine::idle();
        engine.settings.reap.actions = [(Rule::IdleSession, Action::Park)].into();
        let tag = engine.tag(ONE);
        engine.volatile.prompts.attend([tag]);
        engine.change(ONE, |s| s.conversation = Some(Conversation { id: "talk".to_owned(), begun }));
        let (parks, events) = engine.evaluate(false);
        let action = if begun { Action::Park } else { Action::Report };
        assert_eq!(found(&events), [(Rule::IdleSession, action)]);
        assert_eq!(parks, if begun { vec![(ONE, tag)] } else { vec![] });
        assert_eq!(engine.volatile.reaping.is_guarded(tag), begun);
    }
}

#[test]
fn what_would_end_is_named_without_ending_it() {
    let mut engine = Engine::overdue(2);
    engine.change(TWO, |s| s.policy.reap = [(Rule::RunTime, Action::Report)].into());
    let (named, events) = engine.turn(|turn, settings| reap::would_end(turn, settings));
    assert_eq!((named.iter().map(|c| c.session).collect::<Vec<_>>(), events), (vec![ONE], vec![]));
    engine.volatile.stop();
    assert_eq!(engine.evaluate(false), (vec![], vec![]), "nothing is begun once the daemon stops");
}
