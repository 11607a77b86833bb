//! `update`: the parts of a session's policy that it changes, and those that it keeps.

use pool::session;
use protocol::policy::{Policy, RestartPolicy};
use protocol::reap::{Action, Rule};
use protocol::request::Update;
use protocol::{ErrorCode, Event, SessionRef};

use crate::rules::{ONE, Scene};

fn nothing() -> Update {
    Update { session: SessionRef(ONE.to_string()), ..Update::default() }
}

fn update(scene: &mut Scene, asked: &Update) -> Result<Policy, ErrorCode> {
    let decided = session::update(&scene.settings, scene.session(), asked).map_err(|refusal| refusal.code)?;
    let before = scene.session().policy.clone();
    if let Some(event) = decided {
        scene.world.emit(event);
        assert_ne!(scene.session().policy, before, "no event without a change");
    }
    let again = session::update(&scene.settings, scene.session(), asked).unwrap();
    assert_eq!(again, None::<Event>, "twice is once");
    Ok(scene.session().policy.clone())
}

/// A policy with every field set.
fn full() -> Policy {
    Policy {
        restart: RestartPolicy::OnFailure,
        max_restarts: Some(3),
        idle_timeout_ms: Some(4),
        ttl_ms: Some(5),
        max_runtime_ms: Some(6),
        ephemeral: false,
        pinned: true,
        reap: [(Rule::Hung, Action::Kill), (Rule::Memory, Action::Restart)].into(),
    }
}

#[test]
fn what_is_not_said_stays_as_it_is() {
    let mut scene = Scene::new();
    scene.change(|s| s.policy = full());
    assert_eq!(update(&mut scene, &nothing()), Ok(full()));
    let always = Some(RestartPolicy::Always);
    for (asked, expected) in [
        (Update { restart: always, ..nothing() }, Policy { restart: RestartPolicy::Always, ..full() }),
        (Update { max_restarts: Some(30), ..nothing() }, Policy { max_restarts: Some(30), ..full() }),
        (Update { idle_timeout_ms: Some(40), ..nothing() }, Policy { idle_timeout_ms: Some(40), ..full() }),
        (Update { ttl_ms: Some(50), ..nothing() }, Policy { ttl_ms: Some(50), ..full() }),
        (Update { max_runtime_ms: Some(60), ..nothing() }, Policy { max_runtime_ms: Some(60), ..full() }),
    ] {
        let mut scene = Scene::new();
        scene.change(|s| s.policy = full());
        assert_eq!(update(&mut scene, &asked), Ok(expected));
    }
}

#[test]
fn a_run_time_without_end_is_none() {
    let mut scene = Scene::new();
    scene.change(|s| s.policy = full());
    let without_end = Update { max_runtime_ms: Some(u64::MAX), ..nothing() };
    assert_eq!(update(&mut scene, &without_end), Ok(Policy { max_runtime_ms: None, ..full() }));
}

#[test]
fn of_the_rules_each_is_set_or_left_to_others_by_itself() {
    let mut scene = Scene::new();
    scene.change(|s| s.policy = full());
    let says = |rule, action| Update { reap: [(rule, action)].into(), ..nothing() };
    let set = update(&mut scene, &says(Rule::IdleSession, Some(Action::Park))).unwrap();
    let all =
        [(Rule::Hung, Action::Kill), (Rule::IdleSession, Action::Park), (Rule::Memory, Action::Restart)];
    assert_eq!(set, Policy { reap: all.into(), ..full() });
    let changed = update(&mut scene, &says(Rule::Hung, Some(Action::Report))).unwrap();
    assert_eq!(changed.reap.get(&Rule::Hung), Some(&Action::Report));
    let removed = update(&mut scene, &says(Rule::Hung, None)).unwrap();
    let left = [(Rule::IdleSession, Action::Park), (Rule::Memory, Action::Restart)].into();
    assert_eq!(removed, Policy { reap: left, ..full() });
    assert_eq!(scene.action(Rule::Hung).1, "default");
    assert_eq!(update(&mut scene, &says(Rule::RunTime, None)), Ok(removed), "none said so");
}

#[test]
fn what_does_not_go_together_is_refused_and_changes_nothing() {
    let says = |rule, action| Update { reap: [(rule, Some(action))].into(), ..nothing() };
    let restart = |restart| Update { restart: Some(restart), ..nothing() };
    let mut scene = Scene::new();
    for rule in Rule::ALL.into_iter().filter(|rule| !rule.applies_to_session()) {
        assert_eq!(update(&mut scene, &says(rule, Action::Kill)), Err(ErrorCode::Usage), "{rule:?}");
    }
    scene.change(|s| s.policy.ephemeral = true);
    for policy in [RestartPolicy::OnFailure, RestartPolicy::Always] {
        assert_eq!(update(&mut scene, &restart(policy)), Err(ErrorCode::Usage));
    }
    assert!(update(&mut scene, &restart(RestartPolicy::No)).is_ok());
    scene.change(|s| s.spec.resume_args.clear());
    let parks = Update { idle_timeout_ms: Some(1), ..nothing() };
    assert_eq!(update(&mut scene, &parks), Err(ErrorCode::Usage), "it could not take up where it was");
    let never = Update { idle_timeout_ms: Some(u64::MAX), ..nothing() };
    assert_eq!(update(&mut scene, &never).map(|policy| policy.idle_timeout_ms), Ok(Some(u64::MAX)));
}
