//! Observations of tmux, while others act on the same sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use pool::deadlines::Mono;
use pool::lock::{LockRequest, OuterLock, Ticket};
use pool::observe::{Findings, ObserveOutcome, Observer, OutOfReach, Peer, Report};
use pool::{observe, reap};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::clock::{Clock, ClockStep};
use protocol::job::{JOB_VERSION, Started};
use protocol::reap::Outcome;
use protocol::tmux::{TmuxPane, TmuxState};
use protocol::{
    Event, Exit, Lifecycle, PaneId, ProcId, Reason, SessionId, Tag, Timestamp, TmuxSessionId, WindowId,
};

use super::{Engine, ONE};
use crate::world::{pane, process, server, up};

/// The kinds of the events about a session.
fn kinds(outcome: &ObserveOutcome, id: SessionId) -> Vec<&'static str> {
    let of_it = outcome.events.iter().filter(|event| event.session() == Some(id));
    of_it.map(|event| event.kind().as_str()).collect()
}

fn with_pane(engine: &Engine) -> TmuxState {
    up(1, vec![pane(&engine.world, ONE, 1)])
}

#[test]
fn a_session_that_an_operation_starts_is_left_to_that_operation() {
    let mut engine = Engine::new();
    assert_eq!(engine.world.create("a"), Some(ONE));
    assert!(engine.volatile.scheduler.begin_start(ONE));
    engine.pass(1000);
    let listing = with_pane(&engine);
    assert_eq!(kinds(&engine.see(listing.clone(), &[]), ONE), [""; 0]);
    engine.volatile.scheduler.end_start(ONE);
    assert_eq!(kinds(&engine.see(listing, &[]), ONE)[0], "session_live");
}

#[test]
fn an_end_that_the_reaper_is_going_to_report_is_left_to_the_reaper() {
    let mut engine = Engine::with_live(1);
    engine.is(ONE, Lifecycle::Draining, Reason::Killed);
    engine.pass(1000);
    let (tag, gone) = (engine.tag(ONE), [process(101)]);
    let sees = |engine: &mut Engine| kinds(&engine.see(up(1, vec![]), &gone), ONE);
    engine.volatile.reaping.lease(tag, 7, (5_000, Mono(0)));
    assert_eq!(sees(&mut engine), [""; 0], "it holds a lease");
    engine.volatile.reaping.end_lease(tag);
    assert_eq!(sees(&mut engine), ["session_stopped"]);
    let now = (engine.now(), Mono(engine.world.now));
    let named = reap::candidates(&engine.world.pool, &engine.volatile, &engine.settings, now).remove(0);
    let survivors = Outcome::Survivors { left: Vec::new() };
    engine.turn(|turn, _| reap::lease_settled(turn, &named, &survivors));
    assert_eq!(sees(&mut engine), ["session_stopped"], "no reaper is connected to try again");
    let (reaper, now) = (Peer { connection: 7, build: "1".to_owned(), pid: None }, engine.now());
    engine.volatile.reaping.reaper_connected(reaper, now);
    assert_eq!(sees(&mut engine), [""; 0], "it tries again");
}

#[test]
fn a_program_whose_start_was_in_doubt_is_recorded_before_its_end_is_decided_on() {
    let mut engine = Engine::with_live(1);
    engine.is(ONE, Lifecycle::Starting, Reason::Exited);
    engine.change(ONE, |s| s.incarnation.as_mut().unwrap().agent = None);
    engine.pass(10_000);
    let (tag, init, agent) = (engine.tag(ONE), process(101), process(300));
    let report =
        Started { version: JOB_VERSION, init, agent, at: engine.now(), unenforced: vec!["nice".to_owned()] };
    let sees = |engine: &mut Engine| {
        let started = BTreeMap::from([(tag, report.clone())]);
        engine.see_from(up(1, vec![]), Findings { exited: [init].into(), started, ..Findings::default() })
    };
    engine.volatile.scheduler.begin_start(ONE);
    let outcome = sees(&mut engine);
    assert_eq!(
        (kinds(&outcome, ONE), outcome.is_missing),
        (vec![], false),
        "who starts it tells the outcome"
    );
    engine.volatile.scheduler.end_start(ONE);
    let outcome = sees(&mut engine);
    assert_eq!(
        (kinds(&outcome, ONE), outcome.is_missing),
        (vec!["session_placed"], true),
        "and looks again soon"
    );
    engine.world.emit_all(outcome.events);
    assert_eq!(engine.session(ONE).incarnation.as_ref().unwrap().unenforced, ["nice"]);
    engine.is(ONE, Lifecycle::Draining, Reason::Killed);
    engine.pass(10_000);
    assert_eq!(
        kinds(&engine.see(up(1, vec![]), &[init]), ONE),
        ["session_draining"],
        "it ignores the hang-up"
    );
    assert_eq!(kinds(&engine.see(up(1, vec![]), &[init, agent]), ONE), ["session_stopped"]);
}

#[test]
fn a_program_that_ended_by_itself_just_now_has_left_its_pane() {
    for (passed, signal, expected) in [(100, None, 0), (100, Some(1), 1), (250, None, 1)] {
        let mut engine = Engine::with_live(1);
        let now = engine.now();
        engine.change(ONE, |s| s.changed_at = now);
        engine.pass(passed);
        let exit = Exit { code: signal.is_none().then_some(0), signal, at: engine.now() };
        let exits = [(engine.tag(ONE), exit)].into();
        let findings = Findings { exited: [process(101)].into(), exits, ..Findings::default() };
        let outcome = engine.see_from(up(1, vec![]), findings);
        assert_eq!(
            (kinds(&outcome, ONE).len(), outcome.over.len()),
            (expected, expected),
            "{passed} {signal:?}"
        );
    }
}

#[test]
fn a_name_given_in_tmux_counts_unless_the_pool_itself_renames() {
    let renames = |prepare: &dyn Fn(&mut Engine)| {
        let mut engine = Engine::with_live(1);
        prepare(&mut engine);
        engine.pass(1);
        let mut listing = with_pane(&engine);
        let tag = engine.tag(ONE);
        listing.sessions.values_mut().for_each(|session| {
            (session.name, session.made_for, session.renamed) = ("other".to_owned(), Some(tag), true);
        });
        kinds(&engine.see(listing, &[]), ONE).contains(&"session_renamed")
    };
    let operation = |engine: &mut Engine, outer| {
        let request = LockRequest { ticket: Ticket(9), purpose: "rename", outer };
        engine.volatile.locks.request(ONE, request).unwrap().unwrap();
    };
    let user = |engine: &mut Engine| {
        engine.volatile.locks.request_user_lock(ONE, Ticket(8), "deploy", false).unwrap();
    };
    assert!(renames(&|_| ()));
    assert!(!renames(&|engine| operation(engine, OuterLock::None)));
    assert!(renames(&|engine| user(engine)), "a user's lock alone renames nothing");
    assert!(!renames(&|engine| {
        user(engine);
        operation(engine, OuterLock::Current);
    }));
    let renamed = |engine: &mut Engine, now: Timestamp| {
        let moment = engine.world.pool.moment(now, now);
        engine.volatile.observed.renamed(ONE, moment);
    };
    assert!(renames(&|engine| renamed(engine, Timestamp(engine.world.now - 1))), "seen after that");
    assert!(!renames(&|engine| renamed(engine, Timestamp(engine.world.now + 1))));
}

#[test]
fn foreign_sessions_are_news_from_the_second_observation_on() {
    let mut engine = Engine::new();
    let foreign = |n: u32| {
        let bare = TmuxPane::bare(TmuxSessionId(n), WindowId(n), 100 + n);
        (protocol::PaneId(n), TmuxPane { process: Some(process(100 + n)), ..bare })
    };
    let seen = |outcome: ObserveOutcome| -> Vec<Event> {
        let is_foreign =
            |event: &Event| matches!(event, Event::ForeignSeen { .. } | Event::ForeignGone { .. });
        outcome.events.into_iter().filter(is_foreign).collect()
    };
    assert_eq!(seen(engine.see(up(1, vec![foreign(1)]), &[])), []);
    let (gone, new) = (TmuxSessionId(1), TmuxSessionId(2));
    let expected = [
        Event::ForeignGone { tmux: gone, name: "S1".to_owned() },
        Event::ForeignSeen { tmux: new, name: "S2".to_owned() },
    ];
    assert_eq!(seen(engine.see(up(1, vec![foreign(2)]), &[])), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// An observation that may be older than the session's last change declares nothing missing, but is repeated.
    #[test]
    fn nothing_is_missing_by_an_observation_that_may_be_older_than_the_session(passed in 0_u64..600) {
        let mut engine = Engine::with_live(1);
        let now = engine.now();
        engine.change(ONE, |s| s.changed_at = now);
        engine.pass(passed);
        let outcome = engine.see(up(1, vec![]), &[]);
        prop_assert_eq!(outcome.is_missing, passed > 0);
        let expected = if passed < 250 { vec![] } else { vec!["session_draining"] };
        prop_assert_eq!(kinds(&outcome, ONE), expected);
    }

    /// Law 2, of what production does: whatever others do, taking in the same observation twice finds nothing the
    /// second time.
    #[test]
    fn law_2_taking_in_the_same_observation_twice_finds_nothing_the_second_time(
        sessions in vec((0_u8..4, any::<[bool; 6]>()), 1..4),
    ) {
        let mut engine = Engine::with_live(u32::try_from(sessions.len()).unwrap());
        let (mut panes, mut exited) = (Vec::new(), Vec::new());
        for (n, (lifecycle, [there, dead, ended, leased, starting, young])) in (1_u32..).zip(sessions) {
            let id = SessionId(n.into());
            match lifecycle {
                0 => engine.is(id, Lifecycle::Starting, Reason::Killed),
                1 => engine.is(id, Lifecycle::Draining, Reason::Killed),
                2 => engine.is(id, Lifecycle::Draining, Reason::Parked),
                _ => {}
            }
            if !young {
                engine.pass(1000);
            }
            let (at, found) = pane(&engine.world, id, n);
            panes.extend(there.then_some((at, TmuxPane { dead, ..found })));
            exited.extend(ended.then(|| process(100 + n)));
            if leased {
                let tag = engine.tag(id);
                engine.volatile.reaping.lease(tag, 7, (5_000, Mono(0)));
            }
            if starting {
                engine.volatile.scheduler.begin_start(id);
            }
        }
        engine.pass(100);
        let listing = up(1, panes);
        let first = engine.see(listing.clone(), &exited);
        engine.world.emit_all(first.events);
        prop_assert_eq!(engine.see(listing, &exited).events, vec![]);
    }
}

/// Found by the simulator: while the processes of a listing's suspects were sampled, the answer to an older listing
/// came, and the newer one was decided on by the older one's panes.
#[test]
fn a_listing_that_a_newer_one_has_overtaken_is_not_applied() {
    let mut engine = Engine::with_live(1);
    engine.pass(10_000);
    let there = with_pane(&engine);
    drop(engine.update(there.clone(), Duration::from_secs(1)));
    let is_overtaken = |engine: &mut Engine, report: Report, (by, age_ms)| {
        let age = Duration::from_millis(age_ms);
        engine.turn(|turn, _| turn.volatile.observed.is_overtaken(&report, by, turn.beginning(age))).0
    };
    let listing = || Report::Snapshot(up(1, vec![]));
    let (own, watcher) = (Observer::Daemon, Observer::Watcher(1));
    assert!(is_overtaken(&mut engine, listing(), (own, 1001)), "it may lack what the other one showed");
    assert!(!is_overtaken(&mut engine, listing(), (own, 999)));
    assert!(!is_overtaken(&mut engine, listing(), (watcher, 1001)), "a watcher's reports are in order");
    assert!(
        !is_overtaken(&mut engine, Report::Diff(Vec::new()), (own, 1001)),
        "changes follow from the state"
    );
    engine.turn(|turn, _| {
        let began = turn.beginning(Duration::ZERO);
        let (pool, volatile) = turn.state();
        drop(volatile.observed.update(pool, (Report::Diff(Vec::new()), false), (watcher, began)));
    });
    assert!(is_overtaken(&mut engine, listing(), (own, 1)), "changes were seen since");
    assert_eq!(engine.volatile.observed.state(), &there);
}

#[test]
fn a_listing_is_no_younger_once_the_clock_was_set_back() {
    let mut engine = Engine::with_live(1);
    engine.pass(10_000);
    let gone = [process(101), process(300)];
    let update = engine.update(up(1, vec![]), Duration::from_secs(1));
    let listed = engine.now();
    // The session is placed after the listing, at a time that the clock showed once before.
    engine.pass(500);
    let (before, back) = (engine.now(), Timestamp(listed.0 - 2000));
    let clock = engine.world.pool.clock().clone();
    let clock = Clock { steps: [clock.steps, vec![ClockStep::new(before, back)]].concat(), ..clock };
    engine.world.emit(Event::ClockRead(clock));
    engine.world.now = back.0;
    engine.is(ONE, Lifecycle::Live, Reason::Restarted);
    engine.pass(3000);
    let findings = Findings { exited: gone.into(), ..Findings::default() };
    let (now, pool) = (engine.now(), &engine.world.pool);
    let outcome = observe::take_in(pool, &mut engine.volatile, &update, &findings, now);
    assert_eq!(kinds(&outcome, ONE), [""; 0]);
}

#[test]
fn a_verdict_on_a_pane_of_another_server_removes_no_pane_of_this_one() {
    let mut engine = Engine::with_live(1);
    let there = with_pane(&engine);
    drop(engine.update(there, Duration::ZERO));
    let shown = |engine: &Engine| engine.volatile.observed.state().panes.len();
    let (id, tag) = (PaneId(1), engine.tag(ONE));
    engine.volatile.observed.remove_pane(server(2), id, tag);
    engine.volatile.observed.remove_pane(server(1), id, Tag([9; 16]));
    assert_eq!(shown(&engine), 1);
    engine.volatile.observed.remove_pane(server(1), id, tag);
    assert_eq!(shown(&engine), 0);
}

#[test]
fn sessions_in_a_server_that_does_not_answer_name_it_whichever_was_seen_last() {
    let mut engine = Engine::with_live(2);
    let left = |engine: &Engine| observe::out_of_reach(&engine.world.pool, &engine.volatile);
    let replaced = |engine: &Engine| observe::is_replaced(&engine.world.pool, &engine.volatile);
    let see = |engine: &mut Engine, state: TmuxState, exited: &[ProcId]| {
        engine.pass(1000);
        let seen = engine.see(state, exited);
        engine.world.emit_all(seen.events);
    };
    assert!(left(&engine) == OutOfReach::default() && !replaced(&engine));
    let both = OutOfReach { servers: [server(1)].into(), sessions: 2 };
    see(&mut engine, up(2, vec![]), &[]);
    assert!(left(&engine) == both && replaced(&engine), "a stranger answers");
    see(&mut engine, TmuxState::default(), &[server(2).process]);
    assert!(left(&engine) == both && !replaced(&engine), "the stranger has ended");
    see(&mut engine, TmuxState::default(), &[server(1).process]);
    assert_eq!(left(&engine), OutOfReach::default(), "it is proved dead");
}

#[test]
fn a_killed_session_holds_up_no_start_beside_its_server_once_its_programs_are_dead() {
    let mut engine = Engine::with_live(1);
    let is_replaced = |engine: &mut Engine, exited: &[ProcId]| {
        engine.pass(1000);
        let seen = engine.see(up(2, vec![]), exited);
        engine.world.emit_all(seen.events);
        observe::is_replaced(&engine.world.pool, &engine.volatile)
    };
    assert!(is_replaced(&mut engine, &[process(101)]), "nobody has asked for its end");
    engine.is(ONE, Lifecycle::Draining, Reason::Killed);
    engine.change(ONE, |s| s.incarnation.as_mut().unwrap().agent = Some(process(201)));
    assert!(is_replaced(&mut engine, &[process(101)]), "its program may still run");
    assert!(!is_replaced(&mut engine, &[process(101), process(201)]));
    assert_eq!(engine.session(ONE).lifecycle, Lifecycle::Draining, "its pane is not proved to be gone");
}

#[test]
fn a_server_without_sessions_is_out_of_reach_until_it_is_proved_dead() {
    let mut engine = Engine::new();
    let see = |engine: &mut Engine, state: TmuxState, exited: &[ProcId]| {
        let seen = engine.see(state, exited);
        engine.world.emit_all(seen.events);
        let left = observe::out_of_reach(&engine.world.pool, &engine.volatile);
        left.servers
    };
    assert_eq!(see(&mut engine, up(1, vec![]), &[]), []);
    assert_eq!(see(&mut engine, TmuxState::default(), &[]), [server(1)]);
    assert_eq!(see(&mut engine, TmuxState::default(), &[server(1).process]), []);
}

#[test]
fn the_server_on_record_is_that_of_most_sessions_until_it_is_proved_dead() {
    let mut engine = Engine::with_live(2);
    let on_record =
        |engine: &Engine, own| observe::server_on_record(&engine.world.pool, &engine.volatile, own);
    let see = |engine: &mut Engine, state: TmuxState, exited: &[ProcId]| {
        engine.pass(1000);
        let seen = engine.see(state, exited);
        engine.world.emit_all(seen.events);
    };
    assert_eq!(on_record(&engine, false), Some(server(1)));
    see(&mut engine, up(2, vec![]), &[]);
    assert_eq!(on_record(&engine, true), Some(server(1)), "a stranger has no sessions");
    see(&mut engine, up(2, vec![]), &[server(1).process]);
    assert_eq!(on_record(&engine, true), Some(server(2)), "the last one that was seen");
    assert_eq!(on_record(&engine, false), None, "it may be at another socket");
    see(&mut engine, TmuxState::default(), &[server(2).process]);
    assert_eq!(on_record(&engine, true), None);
}
