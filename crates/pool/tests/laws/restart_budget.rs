//! Automatic starts: which, how far apart, and how many.

use std::collections::BTreeSet;
use std::time::Duration;

use pool::{RestartRules, Settings, session, slots};
use protocol::clock::ClockStep;
use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::{Event, Exit, Incarnation, Lifecycle, Reason, SessionId, Timestamp};

use crate::world::{World, launch, settings};

fn rules(restart: RestartRules) -> Settings {
    Settings { max_sessions: 50, restart, ..settings() }
}

/// Sessions with the restart policy `always`.
fn sessions(world: &mut World, settings: &Settings, count: usize) -> Vec<SessionId> {
    let one = |n: usize| {
        let asked = protocol::request::New {
            name: Some(format!("s{n}")),
            command: vec!["job".into()],
            restart: Some(RestartPolicy::Always),
            ..Default::default()
        };
        let launch = launch(world.tag(), world.now);
        let Ok(session::CreateOutcome::Create(made)) =
            session::create(&world.pool, settings, &asked, &launch)
        else {
            panic!()
        };
        world.emit_all(made.events);
        made.session
    };
    (0..count).map(one).collect()
}

fn fail(world: &mut World, id: SessionId) {
    let exit = Some(Exit { code: Some(1), signal: None, at: Timestamp(world.now) });
    world.emit(Event::SessionStopped { session: id, reason: Reason::Exited, exit });
}

fn due(world: &mut World, settings: &Settings, id: SessionId) -> Option<u64> {
    let decided = session::decide_restarts(&world.pool, settings, Timestamp(world.now));
    world.emit_all(decided);
    Some(world.pool.session(id).unwrap().budget.due_at?.0 - world.now)
}

/// Starts a session automatically, when it is due.
fn start(world: &mut World, settings: &Settings, id: SessionId) {
    let due = world.pool.session(id).unwrap().budget.due_at.unwrap();
    assert_eq!(slots::next_start(&world.pool, Timestamp(world.now)), Some(due));
    assert!(!slots::wanting_start(&world.pool, Timestamp(due.0 - 1)).contains(&id));
    world.now = due.0;
    assert_eq!(slots::wanting_start(&world.pool, due), [id]);
    let tag = world.tag();
    let session = world.pool.session(id).unwrap();
    let spent = session::spend_restart(&world.pool, settings, session, due);
    let next = session::next_incarnation(
        session,
        session::NextRun { tag, now: due, conversation: "talk", fresh: false },
    );
    world.emit(spent);
    world.emit_all(next);
}

#[test]
fn a_session_that_fails_each_time_is_told_until_it_runs_well() {
    let settings = rules(RestartRules { max: 100, ..Default::default() });
    let mut world = World { now: 1_000_000, ..World::default() };
    let id = sessions(&mut world, &settings, 1)[0];
    let told = |world: &World, later: u64| {
        let session = world.pool.session(id).unwrap();
        session::fails_each_time(&world.pool, session, Timestamp(world.now + later))
    };
    for failures in 1..=6 {
        fail(&mut world, id);
        due(&mut world, &settings, id);
        assert_eq!(told(&world, 0), failures >= 5, "waits after {failures}");
        start(&mut world, &settings, id);
        assert_eq!(told(&world, 59_999), failures >= 5, "runs after {failures}");
    }
    assert!(!told(&world, 60_000), "it runs well");
    world.now += 60_000;
    fail(&mut world, id);
    assert!(due(&mut world, &settings, id).is_some() && !told(&world, 0), "it ran well");
}

#[test]
fn a_session_that_is_woken_after_a_good_run_has_no_failures_any_more() {
    let settings = rules(RestartRules { max: 100, ..Default::default() });
    let mut world = World { now: 1_000_000, ..World::default() };
    let id = sessions(&mut world, &settings, 1)[0];
    for _ in 0..5 {
        fail(&mut world, id);
        due(&mut world, &settings, id);
        start(&mut world, &settings, id);
    }
    let failures = |world: &World| {
        let session = world.pool.session(id).unwrap();
        let spent = session::spend_restart(&world.pool, &settings, session, Timestamp(world.now));
        let Event::BudgetChanged { budget, .. } = spent else { panic!("{spent:?}") };
        budget.failures
    };
    for (ran, left) in [(59_999, 5), (60_000, 0)] {
        let mut woken = World { now: world.now + ran, pool: world.pool.clone(), ..World::default() };
        woken.emit(Event::SessionParked { session: id, reason: Reason::Parked, exit: None });
        assert_eq!(failures(&woken), left, "after {ran} ms");
    }
}

#[test]
fn pauses_double_to_the_longest_with_up_to_a_fifth_more() {
    let settings =
        rules(RestartRules { max: 100, backoff_max: Duration::from_secs(20), ..Default::default() });
    let mut world = World { now: 1_000_000, ..World::default() };
    let id = sessions(&mut world, &settings, 1)[0];
    for base in [1000, 2000, 4000, 8000, 16_000, 20_000, 20_000, 20_000] {
        fail(&mut world, id);
        let pause = due(&mut world, &settings, id).unwrap();
        assert!((base..=base + base / 5).contains(&pause), "{pause} of {base}");
        start(&mut world, &settings, id);
    }
    world.emit(Event::BudgetChanged {
        session: id,
        budget: Budget { failures: u32::MAX, ..Budget::default() },
    });
    fail(&mut world, id);
    assert!((20_000..=24_000).contains(&due(&mut world, &settings, id).unwrap()));
}

#[test]
fn those_that_fail_together_are_not_started_together() {
    let backoff = Duration::from_secs(100);
    let settings = rules(RestartRules { backoff, ..Default::default() });
    let mut world = World::default();
    let all = sessions(&mut world, &settings, 20);
    all.iter().for_each(|id| fail(&mut world, *id));
    let pauses: BTreeSet<u64> = all.iter().map(|id| due(&mut world, &settings, *id).unwrap()).collect();
    assert_eq!(pauses.len(), 20, "{pauses:?}");
    let (least, most) = (*pauses.first().unwrap(), *pauses.last().unwrap());
    assert!(least >= 100_000 && most <= 120_000 && most - least > 15_000, "{pauses:?}");
}

#[test]
fn what_ran_well_for_a_while_begins_anew() {
    let settings = rules(RestartRules { max: 100, ..Default::default() });
    let mut world = World { now: 1_000_000, ..World::default() };
    let id = sessions(&mut world, &settings, 1)[0];
    let mut pauses = Vec::new();
    for ran in [0, 0, 59_999, 60_000, 0] {
        world.now += ran;
        fail(&mut world, id);
        pauses.push(due(&mut world, &settings, id).unwrap() / 1000);
        start(&mut world, &settings, id);
    }
    assert_eq!(pauses, [1, 2, 4, 1, 2]);
}

#[test]
fn too_many_starts_end_it_until_somebody_starts_it() {
    let settings = rules(RestartRules { max: 2, ..Default::default() });
    let mut world = World { now: 1_000_000, ..World::default() };
    let id = sessions(&mut world, &settings, 1)[0];
    for _ in 0..2 {
        fail(&mut world, id);
        assert!(due(&mut world, &settings, id).is_some());
        start(&mut world, &settings, id);
    }
    fail(&mut world, id);
    assert_eq!(due(&mut world, &settings, id), None);
    assert!(world.pool.session(id).unwrap().budget.exhausted);
    world.now += 100 * 3_600_000;
    assert_eq!(due(&mut world, &settings, id), None, "however long ago that was");
    let renewed = session::reset_budget(world.pool.session(id).unwrap()).unwrap();
    world.emit(renewed);
    assert_eq!(session::reset_budget(world.pool.session(id).unwrap()), None);
    fail(&mut world, id);
    assert!(due(&mut world, &settings, id).is_some());
}

#[test]
fn the_window_moves_on_and_a_clock_that_went_back_does_not_stop_it() {
    let settings = rules(RestartRules { max: 2, ..Default::default() });
    let mut world = World::default();
    let id = sessions(&mut world, &settings, 1)[0];
    let starts = |world: &mut World, starts: &[u64]| {
        let starts = starts.iter().map(|at| Timestamp(*at)).collect();
        world.emit(Event::BudgetChanged { session: id, budget: Budget { starts, ..Budget::default() } });
    };
    let allows = |world: &World, now: u64| {
        session::check_restarts(&world.pool, &settings, world.pool.session(id).unwrap(), Timestamp(now))
            .map_err(|at| at.0)
    };
    starts(&mut world, &[1000, 5000]);
    assert_eq!(allows(&world, 600_999), Err(601_000));
    assert_eq!(allows(&world, 601_000), Ok(()));
    // The first start was recorded while the clock was a day ahead.
    starts(&mut world, &[86_400_000, 1000]);
    assert_eq!(allows(&world, 2000), Err(601_000));
    assert_eq!(allows(&world, 601_000), Ok(()));
}

#[test]
fn which_ends_are_followed_by_a_start() {
    use Lifecycle::{Failed, Lost, Parked, Stopped};
    use RestartPolicy::{Always, No, OnFailure};
    let code = |code: i32| Some(Exit { code: Some(code), signal: None, at: Timestamp(5) });
    let signal = Some(Exit { code: None, signal: Some(9), at: Timestamp(5) });
    let never: &[RestartPolicy] = &[];
    let both: &[RestartPolicy] = &[OnFailure, Always];
    // The number of incarnations counts: if the very first start failed, that was the user's mistake.
    for (lifecycle, reason, exit, incarnations, policies) in [
        (Stopped, Reason::Exited, code(0), 1, &[Always][..]),
        (Stopped, Reason::Exited, code(1), 1, both),
        (Stopped, Reason::Exited, signal, 1, both),
        (Stopped, Reason::Exited, None, 1, both),
        (Stopped, Reason::MemoryLimit, signal, 1, both),
        (Stopped, Reason::DiskLimit, signal, 1, never),
        (Stopped, Reason::RunTime, signal, 1, never),
        (Stopped, Reason::TmuxGone, None, 1, &[Always]),
        (Stopped, Reason::StartupMissingTmux, None, 1, &[Always]),
        (Stopped, Reason::Killed, code(1), 1, never),
        (Stopped, Reason::Drained, code(1), 1, never),
        (Stopped, Reason::Restarted, code(1), 1, never),
        (Parked, Reason::Parked, code(1), 1, never),
        (Parked, Reason::Evicted, code(1), 1, never),
        (Parked, Reason::Idle, code(1), 1, never),
        (Lost, Reason::ServerGone, None, 1, &[Always]),
        (Failed, Reason::TmuxFailed, None, 1, never),
        (Failed, Reason::TmuxFailed, None, 2, both),
        (Failed, Reason::Setup, None, 2, both),
        (Failed, Reason::ExecFailed, code(127), 2, both),
        (Failed, Reason::NameTaken, None, 2, never),
    ] {
        for restart in [No, OnFailure, Always] {
            let settings = rules(RestartRules::default());
            let mut world = World::default();
            let id = sessions(&mut world, &settings, 1)[0];
            let mut record = world.pool.session(id).unwrap().clone();
            let run = Incarnation::intended(world.tag(), Timestamp(0));
            (record.lifecycle, record.reason, record.exit) = (lifecycle, Some(reason), exit);
            (record.incarnations, record.incarnation) = (incarnations, Some(run));
            record.policy = Policy { restart, ..Policy::default() };
            world.emit(Event::SessionCreated(Box::new(record)));
            let again = due(&mut world, &settings, id).is_some();
            let expected = policies.contains(&restart);
            assert_eq!(again, expected, "{restart:?}: {lifecycle:?} {reason:?} {exit:?} {incarnations}");
        }
    }
}

#[test]
fn a_clock_that_is_set_neither_ends_nor_lengthens_a_pause() {
    let mut world = World::default();
    let id = sessions(&mut world, &rules(RestartRules::default()), 1)[0];
    let due = |at: u64| Event::BudgetChanged {
        session: id,
        budget: Budget { due_at: Some(Timestamp(at)), ..Budget::default() },
    };
    world.emit(due(10_000));
    let step = |before, after| ClockStep::new(Timestamp(before), Timestamp(after));
    assert_eq!(pool::shift_pauses(&world.pool, step(9_000, 90_000)), [due(91_000)]);
    assert_eq!(pool::shift_pauses(&world.pool, step(9_000, 1_000)), [due(2_000)]);
}
