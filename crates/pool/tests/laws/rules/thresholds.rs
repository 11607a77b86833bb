//! The thresholds of the rules, and the sessions that they never apply to.

use std::time::Duration;

use pool::reap::{MACHINE_RULES, Reaping, ResourceUse, SESSION_RULES};
use pool::{Pool, ReapRules, reap};
use protocol::clock::{Clock, ClockStep};
use protocol::reap::Rule;
use protocol::{Event, Lifecycle, MessageState, Reason, SessionId, Tag, Timestamp};

use super::{MINUTE, ONE, START, Scene, before};
use crate::world::server;

/// The rules that end a session for its silence.
const OF_SILENCE: [Rule; 3] = [Rule::StaleAgent, Rule::Hung, Rule::IdleSession];
const OF_TIME: [Rule; 4] = [Rule::StaleAgent, Rule::Hung, Rule::IdleSession, Rule::RunTime];

#[test]
fn c01_a_worker_may_be_silent_for_five_minutes_and_a_session_idle_for_fifteen() {
    let minutes = |n: u64| Duration::from_millis(n * MINUTE);
    let rules = ReapRules::default();
    assert_eq!((rules.stale_worker, rules.idle_session), (minutes(5), minutes(15)));
    assert_eq!((rules.stale_agent, rules.hung), (minutes(30), minutes(10)));
    assert!(rules.actions.is_empty());
    for rule in OF_TIME {
        let (scene, at) = Scene::of(rule);
        assert!(!scene.applies(rule, Timestamp(START)), "{rule:?}");
        assert!(!scene.applies(rule, before(at)), "{rule:?}");
        assert!(scene.applies(rule, at) && scene.applies(rule, Timestamp(u64::MAX)), "{rule:?}");
        let told = [Timestamp(START + MINUTE), before(at)].map(|now| scene.verdict(rule, now).at);
        assert_eq!(told, [Some(at); 2], "{rule:?}: from when on it would");
        let others: Vec<Rule> = SESSION_RULES.into_iter().filter(|other| scene.applies(*other, at)).collect();
        let hung_too = if rule == Rule::StaleAgent { vec![rule, Rule::Hung] } else { vec![rule] };
        let idle_too = if rule == Rule::RunTime { vec![rule, Rule::IdleSession] } else { hung_too };
        assert_eq!(others, idle_too, "it is that rule, and none that it has nothing to do with");
    }
}

#[test]
fn c01_what_is_configured_is_the_threshold() {
    for rule in OF_SILENCE {
        let (mut scene, _) = Scene::of(rule);
        let long = Duration::from_millis(77 * MINUTE);
        let reap = &mut scene.settings.reap;
        *match rule {
            Rule::StaleAgent => &mut reap.stale_agent,
            Rule::Hung => &mut reap.hung,
            _ => &mut reap.idle_session,
        } = long;
        let at = Timestamp(START).after(long);
        assert_eq!((scene.applies(rule, before(at)), scene.applies(rule, at)), (false, true), "{rule:?}");
    }
}

#[test]
fn g07_a_limit_is_met_by_more_than_it_allows_and_by_nothing_unknown() {
    for rule in [Rule::Memory, Rule::Disk] {
        let mut scene = Scene::new();
        let applies = |scene: &Scene| scene.applies(rule, Timestamp(u64::MAX));
        assert!(!applies(&scene), "none is set");
        for (allowed, expected) in [(0, true), (999, true), (1000, false), (1001, false), (u64::MAX, false)] {
            scene.change(|s| match rule {
                Rule::Memory => s.spec.limits.memory = Some(allowed),
                _ => s.spec.limits.disk = Some(allowed),
            });
            assert_eq!(applies(&scene), expected, "{rule:?} {allowed}");
            assert_eq!(scene.verdict(rule, Timestamp(START)).at, None, "no time makes it more");
        }
        let (mut scene, at) = Scene::of(rule);
        scene.used.clear();
        assert!(!scene.applies(rule, at), "its use is not known");
    }
}

#[test]
fn c12_idle_is_by_last_activity_and_not_by_age() {
    let idle = |scene: &Scene, at: u64| scene.applies(Rule::IdleSession, Timestamp(START + at * MINUTE));
    let mut scene = Scene::new();
    scene.quiet.insert(ONE, Timestamp(START + 100 * MINUTE));
    assert_eq!((idle(&scene, 114), idle(&scene, 115)), (false, true), "it wrote something at 100");
    let mut scene = Scene::new();
    scene.change(|s| s.last_activity_at = Timestamp(START + 200 * MINUTE));
    assert_eq!((idle(&scene, 214), idle(&scene, 215)), (false, true), "it was sent something at 200");
    let mut scene = Scene::new();
    scene.worked.insert(scene.tag(), Timestamp(START + 300 * MINUTE));
    let shortly = scene.verdict(Rule::IdleSession, Timestamp(START + 300 * MINUTE));
    assert!(!shortly.applies, "it may not even have read what it was given");
    let mut scene = Scene::new();
    scene.busy.insert(ONE);
    assert!(scene.never(Rule::IdleSession), "somebody is at it");
}

#[test]
fn c12_what_has_something_to_do_is_not_idle() {
    let mut scene = Scene::new();
    let id = scene.prompt();
    assert!(scene.never(Rule::IdleSession));
    let cancelled = pool::queue::cancel(&scene.world.pool, id, Timestamp(START)).unwrap();
    scene.world.emit_all(cancelled);
    assert!(!scene.never(Rule::IdleSession));
    scene.claim_other();
    assert!(scene.never(Rule::IdleSession), "a worker has one of its messages");
    let mut scene = Scene::new();
    scene.type_prompt();
    assert!(scene.never(Rule::IdleSession));
}

#[test]
fn g12_quiet_alone_is_no_hang() {
    let (at, ages) = (Timestamp(START + 10 * MINUTE), Timestamp(START + 9000 * MINUTE));
    let hung = |scene: &Scene, now| scene.applies(Rule::Hung, now);
    let scene = Scene::new();
    assert!(scene.never(Rule::Hung), "it has nothing to do");
    let (mut scene, _) = Scene::of(Rule::Hung);
    assert!(hung(&scene, at));
    scene.calm.insert(ONE, Timestamp(START + 8995 * MINUTE));
    assert!(!hung(&scene, ages), "it used the processor five minutes ago");
    scene.calm.clear();
    assert!(scene.never(Rule::Hung), "its use of the processor is not known");
    let (mut scene, _) = Scene::of(Rule::Hung);
    scene.quiet.insert(ONE, Timestamp(START + 8995 * MINUTE));
    assert!(!hung(&scene, ages), "it wrote something five minutes ago");
    scene.quiet.clear();
    assert!(scene.never(Rule::Hung), "its output is not known");
    let (mut scene, _) = Scene::of(Rule::Hung);
    scene.worked.insert(scene.tag(), Timestamp(START + 8995 * MINUTE));
    assert!(!hung(&scene, ages), "it was given its message five minutes ago");
    scene.worked.clear();
    scene.change(|s| s.changed_at = Timestamp(START + 8995 * MINUTE));
    assert!(!hung(&scene, ages), "it runs for five minutes");
    let mut scene = Scene::new();
    scene.claim_other();
    assert!(scene.never(Rule::Hung), "a worker works it, not its program");
}

#[test]
fn g12_a_session_that_uses_more_than_a_hundredth_of_a_processor_computes() {
    let (pool, tag, other) = (Pool::default(), Tag([1; 16]), Tag([2; 16]));
    let (before, now) = (Timestamp(START), Timestamp(START + 1000));
    for (its, cpu_us, is_calm) in [
        (tag, 5_000_000, true),
        (tag, 5_010_000, true),
        (tag, 5_010_001, false),
        (tag, 5_600_000, false),
        // The count of another program, or of other processes.
        (other, 5_000_000, false),
        (tag, 4_999_999, false),
    ] {
        let mut reaping = Reaping::new(before);
        reaping.note_cpu(&pool, vec![(ONE, tag, 5_000_000)], before);
        assert_eq!(reaping.low_cpu_since(), [(ONE, before)].into());
        reaping.note_cpu(&pool, vec![(ONE, its, cpu_us)], now);
        let since = if is_calm { before } else { now };
        assert_eq!(reaping.low_cpu_since(), [(ONE, since)].into(), "{its} {cpu_us}");
        reaping.note_cpu(&pool, Vec::new(), now);
        assert!(reaping.low_cpu_since().is_empty(), "it is not sampled any more");
    }
}

#[test]
fn c02_an_agent_is_stale_only_with_a_message_and_without_a_sign() {
    let rule = Rule::StaleAgent;
    let mut scene = Scene::new();
    assert!(scene.never(rule), "it holds none");
    scene.prompt();
    assert!(scene.never(rule), "one that waits was not given to it");
    let mut scene = Scene::new();
    scene.claim_other();
    assert!(scene.never(rule), "a worker holds it");
    for sign in 0..4 {
        let (mut scene, at) = Scene::of(rule);
        assert!(scene.applies(rule, at));
        match sign {
            0 => drop(scene.quiet.insert(ONE, Timestamp(START + 1))),
            1 => drop(scene.calm.insert(ONE, Timestamp(START + 1))),
            2 => drop(scene.worked.insert(scene.tag(), Timestamp(START + 1))),
            _ => scene.change(|s| s.changed_at = Timestamp(START + 1)),
        }
        assert!(!scene.applies(rule, at), "{sign}");
        assert_eq!(scene.verdict(rule, at).at, Some(Timestamp(at.0 + 1)), "{sign}");
        scene.quiet.remove(&ONE);
        assert!(scene.never(rule), "not known is no sign of staleness");
    }
}

#[test]
fn p06_a_message_in_doubt_waits_for_a_person_and_makes_nobody_stale() {
    let (mut scene, at) = Scene::of(Rule::StaleAgent);
    scene.prompt();
    assert!(scene.applies(Rule::StaleAgent, at) && scene.applies(Rule::Hung, at));
    let open = scene.world.pool.held_messages().next().unwrap();
    let doubt =
        pool::queue::transition(&open, MessageState::InDoubt, Some("cut off".into()), Timestamp(START));
    scene.world.emit(doubt);
    assert!(OF_SILENCE.into_iter().all(|rule| scene.never(rule)));
}

#[test]
fn p06_what_is_pinned_attached_locked_or_waits_for_a_person_is_not_ended_for_its_silence() {
    type Change = fn(&mut Scene);
    let changes: [(&str, Change); 5] = [
        ("pinned", |scene| scene.change(|s| s.policy.pinned = true)),
        ("attached", |scene| scene.change(|s| s.attached_clients = 1)),
        ("locked", Scene::lock),
        ("waits for a person", |scene| assert!(scene.ask.insert(ONE))),
        ("of another", |scene| scene.quiet = [(SessionId(2), Timestamp(0))].into()),
    ];
    for rule in OF_SILENCE {
        for (why, change) in changes {
            let (mut scene, at) = Scene::of(rule);
            assert!(scene.applies(rule, at));
            change(&mut scene);
            assert!(scene.never(rule), "{rule:?}: {why}");
        }
    }
    // A limit that was set for the session holds, except while a client is attached.
    for (why, change) in changes {
        let (mut scene, at) = Scene::of(Rule::RunTime);
        change(&mut scene);
        assert_eq!(scene.applies(Rule::RunTime, at), why != "attached", "{why}");
    }
}

#[test]
fn p06_what_does_not_run_is_found_by_no_rule() {
    use Lifecycle::{Draining, Failed, Lost, Parked, Starting, Stopped};
    for rule in SESSION_RULES {
        for lifecycle in [Starting, Draining, Stopped, Parked, Lost, Failed] {
            let (mut scene, at) = Scene::of(rule);
            assert!(scene.applies(rule, at));
            scene.change(|s| (s.lifecycle, s.reason) = (lifecycle, Some(Reason::Exited)));
            assert!(scene.never(rule), "{rule:?} {lifecycle:?}");
        }
    }
    let scene = Scene::new();
    for rule in Rule::ALL.into_iter().filter(|rule| !rule.applies_to_session()) {
        assert!(scene.never(rule), "{rule:?}");
    }
    let mut listed = SESSION_RULES.to_vec();
    listed.sort_unstable();
    listed.extend(MACHINE_RULES);
    assert_eq!(listed, Rule::ALL.into_iter().filter(|rule| rule.applies_to_session()).collect::<Vec<_>>());
}

#[test]
fn p06_a_clock_that_went_back_makes_nothing_older() {
    for rule in OF_TIME {
        let (scene, _) = Scene::of(rule);
        assert!(!scene.applies(rule, Timestamp(0)), "{rule:?}");
    }
}

#[test]
fn what_fills_the_disk_comes_before_what_is_only_idle_whichever_session_it_is() {
    let (mut scene, _) = Scene::of(Rule::IdleSession);
    let two = scene.world.live("t", server(1), 2);
    let mut record = scene.world.pool.session(two).unwrap().clone();
    record.spec.limits.disk = Some(999);
    scene.world.emit(Event::SessionCreated(Box::new(record)));
    scene.used.insert(two, ResourceUse { disk: Some(1000), unread: true, ..ResourceUse::default() });
    let found = scene
        .with_signs(Timestamp(u64::MAX), |signs| reap::violations(&scene.world.pool, &scene.settings, signs));
    let why = found[0].2.clone();
    assert!(why.ends_with("some of its files cannot be read, and do not count"), "{why}");
    let found: Vec<(SessionId, Rule)> = found.into_iter().map(|(id, rule, _)| (id, rule)).collect();
    assert_eq!((found[0], found.contains(&(ONE, Rule::IdleSession))), ((two, Rule::Disk), true), "{found:?}");
}

#[test]
fn p06_what_is_at_work_when_the_clock_is_set_back_is_not_silent() {
    for rule in OF_SILENCE {
        let (mut scene, at) = Scene::of(rule);
        // The session has worked until now, whatever its record says about its start.
        let back = Timestamp(at.0 - 20 * MINUTE);
        let step = ClockStep::new(at, back);
        scene.world.emit(Event::ClockRead(Clock { read_at: back, steps: vec![step], ..Clock::default() }));
        let now = back.after(Duration::from_secs(60));
        (scene.quiet, scene.calm) = ([(ONE, now)].into(), [(ONE, now)].into());
        assert!(!scene.applies(rule, now), "{rule:?}");
    }
}
