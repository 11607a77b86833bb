//! Events that follow from an observation of tmux, and candidates.

use std::collections::{BTreeMap, BTreeSet};

use pool::observe::{DiffScope, Observation, diff_scope, reconcile};
use pool::reap::{Orphans, ReapInputs};
use pool::session;
use pool::session::NextRun;
use protocol::diff::Change;
use protocol::event::EventKind;
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{
    Event, Exit, Incarnation, Lifecycle, PaneId, Reason, SessionId, Tag, Timestamp, TmuxSessionId,
};

use crate::world::{World, pane, process, server, settings, up};

/// The candidates with this state of tmux, these ended processes, and a listing of this time.
fn named(
    world: &World,
    state: &TmuxState,
    exited: &[protocol::ProcId],
    listed_from: u64,
) -> Vec<protocol::reap::Candidate> {
    let inputs = ReapInputs {
        state,
        exited: &exited.iter().copied().collect(),
        now: Timestamp(world.now),
        listed_from: Some(world.pool.moment(Timestamp(world.now), Timestamp(listed_from))),
        grace_ms: 1,
        drained: &BTreeSet::new(),
        orphans: &Orphans::default(),
    };
    crate::world::candidates(&world.pool, &settings(), &inputs)
}

fn live() -> (World, SessionId) {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    (world, id)
}

/// Changes what is known of where a session runs.
fn place(world: &mut World, session: SessionId, change: impl FnOnce(&mut Incarnation)) {
    let mut incarnation = world.pool.session(session).unwrap().incarnation.clone().unwrap();
    change(&mut incarnation);
    world.emit(Event::SessionPlaced { session, incarnation });
}

fn on_no_known_server(run: &mut Incarnation) {
    (run.server, run.session, run.pane) = (None, None, None);
}

#[test]
fn t02_first_absence_is_published_and_the_second_is_proof() {
    let (mut world, id) = live();
    place(&mut world, id, |run| run.init = None);
    let empty = up(1, vec![]);
    world.now = 1000;
    world.see(&empty, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Draining);
    world.now = 1998;
    assert_eq!(world.see(&empty, &[]), vec![]);
    world.now = 2000;
    let part = DiffScope { sessions: [id].into(), ..DiffScope::default() };
    assert_eq!(world.see_only(&empty, Some(&part)), vec![], "not a listing of the whole server");
    world.see(&empty, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Stopped);
    assert_eq!(world.pool.session(id).unwrap().reason, Some(Reason::TmuxGone));
}

#[test]
fn t02_nothing_is_left_over_before_a_second_listing_lacks_it() {
    let (mut world, id) = live();
    let there = up(1, vec![pane(&world, id, 1)]);
    world.now = 1000;
    world.see(&up(1, vec![]), &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Draining);
    world.now = 9000;
    let left = |state: &TmuxState, listed_from: u64| named(&world, state, &[], listed_from).len();
    assert_eq!(left(&up(1, vec![]), 1000), 0, "time alone proves nothing");
    assert_eq!(left(&up(1, vec![]), 2000), 1);
    assert_eq!(left(&there, 2000), 0, "it is there");
}

#[test]
fn one_tmux_session_names_one_session() {
    let mut world = World::default();
    let (one, two) = (world.live("one", server(1), 1), world.live("two", server(1), 2));
    let (mut state, moved) = (up(1, vec![pane(&world, one, 1)]), pane(&world, two, 2));
    state.panes.insert(moved.0, TmuxPane { session: TmuxSessionId(1), ..moved.1 });
    let made_for = world.pool.session(two).unwrap().tag();
    let fresh = TmuxSession {
        name: "fresh".into(),
        created_at: 1,
        attached: 0,
        pooled: true,
        made_for,
        renamed: true,
    };
    state.sessions.insert(TmuxSessionId(1), fresh);
    world.see(&state, &[]);
    let names = [one, two].map(|id| world.pool.session(id).unwrap().name.to_string());
    assert_eq!(names, ["one", "fresh"], "the one for which it was made");
}

#[test]
fn what_is_being_adopted_is_not_missing_before_it_has_its_mark() {
    let (mut world, id) = live();
    let mut record = world.pool.session(id).unwrap().clone();
    record.lifecycle = Lifecycle::Starting;
    world.emit(Event::SessionCreated(Box::new(record)));
    assert_eq!(world.see(&up(1, vec![]), &[]).iter().filter_map(Event::session).count(), 0);
    assert_eq!(world.lifecycle(id), Lifecycle::Starting);
}

/// Without a program of its own that is known, and with one that outlives its init.
#[test]
fn what_is_known_to_live_keeps_its_slot_until_the_reaper_ended_it() {
    let (init, program) = (process(101), process(201));
    for (agent, ended, last) in [(None, None, init), (Some(program), Some(init), program)] {
        for (state, gone, end) in [
            (up(1, vec![]), None, Lifecycle::Stopped),
            (TmuxState::default(), Some(server(1).process), Lifecycle::Lost),
        ] {
            let (mut world, id) = live();
            place(&mut world, id, |run| run.agent = agent.or(run.agent));
            let dead: Vec<_> = ended.into_iter().chain(gone).collect();
            for now in [1000, 3000, 9000] {
                world.now = now;
                world.see(&state, &dead);
                assert_eq!(world.lifecycle(id), Lifecycle::Draining);
            }
            let kinds: Vec<_> = named(&world, &state, &dead, world.now).iter().map(|c| c.kind).collect();
            assert_eq!(kinds, [protocol::reap::CandidateKind::Leftover]);
            world.see(&state, &[dead, vec![last]].concat());
            assert_eq!(world.lifecycle(id), end);
        }
    }
}

#[test]
fn what_drains_and_cannot_work_its_queue_any_more_is_ended() {
    let (mut world, id) = live();
    crate::queue::send_prompt(&mut world, id).unwrap();
    let drained = session::drain(&world.pool, world.pool.session(id).unwrap(), None).unwrap();
    world.emit_all(drained);
    let found = |world: &World, state: &TmuxState, exited: &[protocol::ProcId]| {
        named(world, state, exited, world.now).len()
    };
    let there = up(1, vec![pane(&world, id, 1)]);
    assert_eq!(found(&world, &there, &[]), 0, "it works");
    assert_eq!(found(&world, &there, &[process(101)]), 1, "its program is over");
    world.see(&TmuxState::default(), &[server(1).process]);
    assert_eq!(found(&world, &TmuxState::default(), &[server(1).process]), 1, "its server is dead");
    world.now = 1000;
    world.see(&up(1, vec![]), &[]);
    assert_eq!((world.lifecycle(id), found(&world, &up(1, vec![]), &[])), (Lifecycle::Draining, 0));
    world.now = 2000;
    assert_eq!(found(&world, &up(1, vec![]), &[]), 1, "its pane is proved gone");
}

#[test]
fn a_drain_that_is_cut_off_while_its_program_works_is_told_as_such() {
    let exit = |code, signal| Some(Exit { code, signal, at: Timestamp(1) });
    let (lost, done) = ((Lifecycle::Lost, Reason::ServerGone), (Lifecycle::Stopped, Reason::Drained));
    for (is_at_rest, exit, expected) in [
        (false, None, lost),
        (false, exit(None, Some(1)), lost),
        (false, exit(Some(0), None), done),
        (true, None, done),
    ] {
        let (mut world, id) = live();
        let drained = session::drain(&world.pool, world.pool.session(id).unwrap(), None).unwrap();
        world.emit_all(drained);
        if is_at_rest {
            world.drained.insert(id);
        }
        let draining =
            Event::SessionDraining { session: id, reason: Reason::Drained, exit, missing_since: None };
        world.emit(draining);
        world.see(&TmuxState::default(), &[server(1).process, process(101)]);
        let session = world.pool.session(id).unwrap();
        assert_eq!((session.lifecycle, session.reason), (expected.0, Some(expected.1)), "{exit:?}");
    }
}

#[test]
fn a_listing_that_began_before_the_session_says_nothing_of_it() {
    let mut world = World { now: 5000, ..World::default() };
    let id = world.live("a", server(1), 1);
    let seen = |from: u64| {
        let observation = Observation {
            state: &up(1, vec![]),
            now: Timestamp(6000),
            began: world.pool.moment(Timestamp(6000), Timestamp(from)),
            exited: &[process(101)].into(),
            exits: &BTreeMap::new(),
            first: false,
            drained: &BTreeSet::new(),
            only: None,
        };
        let events = reconcile(&world.pool, &observation);
        let of_session = events.iter().filter(|event| event.session() == Some(id));
        of_session.map(Event::kind).collect::<Vec<_>>()
    };
    assert_eq!(seen(5000), vec![]);
    assert_eq!(seen(5001), [EventKind::SessionStopped]);
}

#[test]
fn t02_a_diff_says_nothing_of_what_it_does_not_name() {
    let mut world = World::default();
    let (one, two) = (world.live("one", server(1), 1), world.live("two", server(1), 2));
    let before = up(1, vec![pane(&world, one, 1), pane(&world, two, 2)]);
    let changes = [Change::PaneGone(PaneId(1)), Change::SessionGone(TmuxSessionId(1))];
    let touched = diff_scope(&world.pool, &before, &changes).unwrap();
    assert_eq!(touched.sessions, BTreeSet::from([one]));
    // The other session was not read, so it is not declared missing.
    let events = world.see_only(&up(1, vec![]), Some(&touched));
    let drained: Vec<_> = events.iter().filter_map(Event::session).collect();
    assert_eq!(drained, [one]);
    assert_eq!(world.lifecycle(two), Lifecycle::Live);
    assert_eq!(pool::observe::diff_scope(&world.pool, &before, &[Change::Server(Server::Absent)]), None);
}

#[test]
fn w05_a_session_renamed_in_tmux_keeps_its_record() {
    let mut world = World::default();
    let (one, two) = (world.live("one", server(1), 1), world.live("two", server(1), 2));
    let mut state = up(1, vec![pane(&world, one, 1), pane(&world, two, 2)]);
    let tags = [one, two].map(|id| world.pool.session(id).unwrap().tag().unwrap());
    let mut shown = |world: &mut World, name: &str, made_for: Option<Tag>| {
        let (name, renamed) = (name.to_owned(), true);
        let session = TmuxSession { name, created_at: 1, attached: 0, pooled: true, made_for, renamed };
        state.sessions.insert(TmuxSessionId(1), session);
        world.see(&state, &[]);
        world.pool.session(one).unwrap().name.to_string()
    };
    assert_eq!(
        shown(&mut world, "main", None),
        "one",
        "it was moved into another session, which has its own name"
    );
    assert_eq!(
        shown(&mut world, "main", Some(tags[1])),
        "one",
        "of another one of the pool's, which was renamed"
    );
    let mut named = |world: &mut World, name: &str| shown(world, name, Some(tags[0]));
    assert_eq!(named(&mut world, "uno"), "uno");
    assert_eq!(named(&mut world, "Not A Name"), "uno");
    assert_eq!(named(&mut world, "two"), "uno", "taken");
    assert_eq!(named(&mut world, "one"), "one", "its own workspace");
    assert_eq!(world.pool.named("uno"), None);
}

#[test]
fn w32_a_program_whose_pane_went_with_it_was_ended_by_tmux() {
    let ends = |dead: bool, server_dead: bool| {
        let (mut world, id) = live();
        let (at, mut seen) = pane(&world, id, 1);
        (seen.exited, seen.exit_signal) = (true, Some(1));
        world.see(&up(1, vec![(at, seen.clone())]), &[process(101)]);
        assert_eq!(world.pool.session(id).unwrap().reason, Some(Reason::Exited));
        if dead {
            seen.dead = true;
            world.see(&up(1, vec![(at, seen)]), &[process(101)]);
        }
        let state = if server_dead { TmuxState::default() } else { up(1, vec![]) };
        world.now += 1;
        world.see(&state, &[process(101), process(1)][..1 + usize::from(server_dead)]);
        let session = world.pool.session(id).unwrap();
        (session.lifecycle, session.reason.unwrap())
    };
    assert_eq!(ends(true, false), (Lifecycle::Stopped, Reason::Exited), "its pane was left");
    assert_eq!(ends(false, false), (Lifecycle::Stopped, Reason::TmuxGone));
    assert_eq!(ends(true, true), (Lifecycle::Stopped, Reason::Exited));
    assert_eq!(ends(false, true), (Lifecycle::Lost, Reason::ServerGone));
}

#[test]
fn a_process_seen_to_end_is_the_end_of_its_session() {
    // An init exits as its program did, except for KILL, which only others can send to it.
    for (signal, told) in [(15, Some(15)), (9, None)] {
        let (mut world, id) = live();
        let (at, mut seen) = pane(&world, id, 1);
        (seen.exited, seen.exit_signal) = (true, Some(signal));
        let state = up(1, vec![(at, seen)]);
        assert_eq!(pool::observe::unconfirmed_runs(&world.pool, &state, None).count(), 1);
        world.see(&state, &[process(101)]);
        let session = world.pool.session(id).unwrap();
        assert_eq!((session.lifecycle, session.reason), (Lifecycle::Draining, Some(Reason::Exited)));
        assert_eq!(session.exit.and_then(|exit| exit.signal), told);
    }
}

#[test]
fn t02_absence_with_the_processs_end_is_proof_at_once() {
    let (mut world, id) = live();
    world.see(&up(1, vec![]), &[process(101)]);
    assert_eq!(world.lifecycle(id), Lifecycle::Stopped);
}

#[test]
fn t01_unknown_and_silence_remove_nothing() {
    let (mut world, id) = live();
    for state in
        [TmuxState { server: Server::unknown("timed out"), ..TmuxState::default() }, TmuxState::default()]
    {
        for now in [0, 5000, 500_000] {
            world.now = now;
            assert_eq!(world.see(&state, &[]), vec![]);
        }
    }
    assert_eq!(world.lifecycle(id), Lifecycle::Live);
    world.see(&TmuxState::default(), &[server(1).process, process(101)]);
    assert_eq!(world.lifecycle(id), Lifecycle::Lost);
}

#[test]
fn t03_a_recycled_id_in_a_new_server_is_never_the_old_pane() {
    let (mut world, id) = live();
    let (number, mut stranger) = pane(&world, id, 1);
    stranger.tag = Some(Tag([0xee; 16]));
    let replaced = up(2, vec![(number, stranger)]);
    world.see(&replaced, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Live, "the old server is not proved dead");
    world.see(&replaced, &[server(1).process, process(101)]);
    assert_eq!(world.lifecycle(id), Lifecycle::Lost);
}

#[test]
fn a_pane_that_comes_back_is_live_again() {
    let (mut world, id) = live();
    let there = pane(&world, id, 1);
    world.see(&up(1, vec![]), &[]);
    world.see(&up(1, vec![there]), &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Live);
}

#[test]
fn w13_a_tag_of_an_ended_incarnation_is_removed_and_never_adopted() {
    let (mut world, id) = live();
    let (number, old) = pane(&world, id, 1);
    world.emit(Event::SessionStopped { session: id, reason: Reason::Restarted, exit: None });
    let (tag, now) = (world.tag(), Timestamp(world.now));
    let events = session::next_incarnation(
        world.pool.session(id).unwrap(),
        NextRun { tag, now, conversation: "talk", fresh: false },
    );
    world.emit_all(events);
    let state = up(1, vec![(number, old)]);
    world.see(&state, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Starting);
    let found = named(&world, &state, &[], world.now);
    assert_eq!(
        found.iter().map(|c| (c.kind, c.pane)).collect::<Vec<_>>(),
        [(protocol::reap::CandidateKind::RetiredTag, Some(number))]
    );
}

#[test]
fn p06_a_pane_without_a_record_is_never_a_candidate() {
    let (world, id) = live();
    let (number, mut stranger) = pane(&world, id, 7);
    stranger.tag = Some(Tag([0xaa; 16]));
    stranger.dead = true;
    let state = up(1, vec![pane(&world, id, 1), (number, stranger)]);
    assert_eq!(named(&world, &state, &[], world.now), vec![]);
}

/// Found by the simulator: tmux did not answer the creation, the init was killed, and the server died; nobody
/// knew of which server it had been.
#[test]
fn what_runs_on_no_known_server_is_over_once_its_init_is() {
    // In the default state nothing listens at the socket, which does not show that the pane is gone: the reason is the
    // exit, also at the start of the daemon.
    for (state, is_first, reason) in [
        (up(1, vec![]), false, Reason::TmuxGone),
        (up(1, vec![]), true, Reason::StartupMissingTmux),
        (TmuxState::default(), false, Reason::Exited),
        (TmuxState::default(), true, Reason::Exited),
    ] {
        let (mut world, id) = live();
        place(&mut world, id, on_no_known_server);
        (world.now, world.is_first) = (5000, is_first);
        world.see(&state, &[]);
        assert_eq!(world.lifecycle(id), Lifecycle::Live, "its init lives");
        world.see(&state, &[process(101)]);
        let session = world.pool.session(id).unwrap();
        assert_eq!((session.lifecycle, session.reason), (Lifecycle::Stopped, Some(reason)));
    }
}

#[test]
fn what_runs_on_no_known_server_without_its_init_is_left_over() {
    // In the default state nothing listens at the socket, which does not show that the pane is gone.
    for (state, reason) in [(up(1, vec![]), Reason::TmuxGone), (TmuxState::default(), Reason::Exited)] {
        let (mut world, id) = live();
        place(&mut world, id, on_no_known_server);
        place(&mut world, id, |run| run.agent = Some(process(201)));
        for now in [5000, 7000] {
            world.now = now;
            world.see(&state, &[process(101)]);
            let session = world.pool.session(id).unwrap();
            assert_eq!((session.lifecycle, session.reason), (Lifecycle::Draining, Some(reason)));
        }
        let kinds: Vec<_> =
            named(&world, &state, &[process(101)], world.now).iter().map(|c| c.kind).collect();
        assert_eq!(kinds, [protocol::reap::CandidateKind::Leftover]);
        world.see(&state, &[process(101), process(201)]);
        assert_eq!(world.lifecycle(id), Lifecycle::Stopped);
    }
}

/// Found by the simulator: the socket of tmux was gone, so that nobody could see whether the pane was.
#[test]
fn what_ended_on_no_known_server_keeps_its_reason_where_tmux_cannot_be_reached() {
    for (state, reason) in [(up(1, vec![]), Reason::TmuxGone), (TmuxState::default(), Reason::Exited)] {
        let (mut world, id) = live();
        place(&mut world, id, on_no_known_server);
        let exit = Some(Exit { code: Some(3), signal: None, at: Timestamp(world.now) });
        world.emit(Event::SessionDraining { session: id, reason: Reason::Exited, exit, missing_since: None });
        world.now = 5000;
        world.see(&state, &[process(101)]);
        let session = world.pool.session(id).unwrap();
        assert_eq!((session.lifecycle, session.reason), (Lifecycle::Stopped, Some(reason)));
    }
}
