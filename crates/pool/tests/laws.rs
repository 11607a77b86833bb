//! The laws of the core, for random events, requests and observations.
#![expect(clippy::unwrap_used, reason = "what a test needs is there, or the test fails")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use pool::admit::{self, Admitted, Launch};
use pool::locks::{LockTable, Ticket};
use pool::reconcile::{Evidence, Touched, reconcile, touched};
use pool::{Naming, Pool, Settings, queue, stale};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::diff::Change;
use protocol::request::{New, Send};
use protocol::session::{Reason, Size};
use protocol::tmux::{Server, TmuxPane, TmuxSession, TmuxState};
use protocol::{
    Epoch, Event, Exit, Incarnation, Lifecycle, MessageState, OpId, PaneId, ProcId, Seq, ServerId, SessionId,
    SessionRef, Stamped, Tag, Timestamp, TmuxSessionId, Token, WindowId,
};

fn settings() -> Settings {
    Settings {
        max_sessions: 4,
        naming: Naming::Numeric,
        size: Size { cols: 80, rows: 24 },
        sessions_dir: PathBuf::from("/state/sessions"),
        agents: BTreeMap::new(),
        queue_messages: 3,
        queue_bytes: 1000,
        grace_ms: 5000,
        umask: 0o022,
        adoption: pool::Adoption::Never,
    }
}

/// A pool under test with the clock and tags that a shell would bring.
#[derive(Default)]
struct World {
    pool: Pool,
    now: u64,
    tags: u8,
}

impl World {
    fn emit(&mut self, event: Event) -> Stamped {
        let seq = Seq(self.pool.seq().0 + u64::from(event.is_journaled()));
        let stamped = Stamped { seq, at: Timestamp(self.now), event };
        self.pool.apply(&stamped);
        stamped
    }

    fn emit_all(&mut self, events: Vec<Event>) -> Vec<Stamped> {
        events.into_iter().map(|e| self.emit(e)).collect()
    }

    fn tag(&mut self) -> Tag {
        self.tags += 1;
        Tag([self.tags; 16])
    }

    fn create(&mut self, name: &str) -> Option<SessionId> {
        let launch = Launch { tag: self.tag(), now: Timestamp(self.now), stamp: "20260101-000000" };
        let asked = New { name: Some(name.to_owned()), command: vec!["cat".into()], ..New::default() };
        match admit::new(&self.pool, &settings(), &asked, &launch) {
            Ok(Admitted::Create(made)) => {
                self.emit_all(made.events);
                Some(made.session)
            }
            _ => None,
        }
    }

    fn live(&mut self, name: &str, server: ServerId, pane: u32) -> SessionId {
        let id = self.create(name).unwrap();
        let run = self.pool.session(id).unwrap().incarnation.clone().unwrap();
        let incarnation = Incarnation {
            server: Some(server),
            session: Some(TmuxSessionId(pane)),
            pane: Some(PaneId(pane)),
            init: Some(process(100 + pane)),
            ..run
        };
        self.emit(Event::SessionLive { session: id, incarnation, recovered: true });
        id
    }

    fn see(&mut self, state: &TmuxState, exited: &[ProcId]) -> Vec<Event> {
        self.see_all(state, exited, None)
    }

    fn see_only(&mut self, state: &TmuxState, only: Option<&Touched>) -> Vec<Event> {
        self.see_all(state, &[], only)
    }

    fn see_all(&mut self, state: &TmuxState, exited: &[ProcId], only: Option<&Touched>) -> Vec<Event> {
        let exited: BTreeSet<ProcId> = exited.iter().copied().collect();
        let seen = Evidence {
            state,
            now: Timestamp(self.now),
            began: Timestamp(self.now + 1),
            exited: &exited,
            exits: &BTreeMap::new(),
            first: false,
            only,
        };
        let events = reconcile(&self.pool, &seen);
        self.emit_all(events.clone());
        events
    }

    fn lifecycle(&self, id: SessionId) -> Lifecycle {
        self.pool.session(id).unwrap().lifecycle
    }
}

fn process(pid: u32) -> ProcId {
    ProcId { pid, start: u64::from(pid) * 10 }
}

fn server(n: u32) -> ServerId {
    ServerId { process: process(n), started_at: u64::from(n) }
}

fn pane(world: &World, id: SessionId, n: u32) -> (PaneId, TmuxPane) {
    let tag = world.pool.session(id).unwrap().incarnation.as_ref().unwrap().tag;
    let pane = TmuxPane {
        session: TmuxSessionId(n),
        window: WindowId(n),
        tag: Some(tag),
        process: Some(process(100 + n)),
        pid: 100 + n,
        dead: false,
        exited: false,
        exit_status: None,
        exit_signal: None,
        in_mode: false,
        width: 80,
        height: 24,
        current_command: None,
        current_dir: None,
        detached: false,
    };
    (PaneId(n), pane)
}

fn up(n: u32, panes: Vec<(PaneId, TmuxPane)>) -> TmuxState {
    let session = |pane: &TmuxPane| {
        (pane.session, TmuxSession { name: format!("S{}", pane.session.0), created_at: 1, attached: 0 })
    };
    let sessions = panes.iter().map(|(_, pane)| session(pane)).collect();
    TmuxState { server: Server::Up(server(n)), sessions, panes: panes.into_iter().collect() }
}

#[test]
fn t02_first_absence_is_published_and_the_second_is_proof() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let run = world.pool.session(id).unwrap().incarnation.clone().unwrap();
    world.emit(Event::SessionPlaced { session: id, incarnation: Incarnation { init: None, ..run } });
    let empty = up(1, vec![]);
    world.now = 1000;
    world.see(&empty, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Draining);
    world.now = 1998;
    assert_eq!(world.see(&empty, &[]), vec![]);
    world.now = 2000;
    let part = Touched { sessions: [id].into(), ..Touched::default() };
    assert_eq!(world.see_only(&empty, Some(&part)), vec![], "not a listing of the whole server");
    world.see(&empty, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Stopped);
    assert_eq!(world.pool.session(id).unwrap().reason, Some(Reason::TmuxGone));
}

#[test]
fn t02_nothing_is_left_over_before_a_second_listing_lacks_it() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let there = up(1, vec![pane(&world, id, 1)]);
    world.now = 1000;
    world.see(&up(1, vec![]), &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Draining);
    world.now = 9000;
    let left = |state: &TmuxState, listed_from: u64| {
        let (exited, now, listed_from) = (BTreeSet::new(), Timestamp(9000), Some(Timestamp(listed_from)));
        let facts = stale::Facts { state, exited: &exited, now, listed_from, grace_ms: 1 };
        stale::candidates(&world.pool, &facts).len()
    };
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
    let fresh = TmuxSession { name: "fresh".into(), created_at: 1, attached: 0 };
    state.sessions.insert(TmuxSessionId(1), fresh);
    world.see(&state, &[]);
    let names = [one, two].map(|id| world.pool.session(id).unwrap().name.to_string());
    assert_eq!(names, ["fresh", "two"]);
}

#[test]
fn what_is_being_adopted_is_not_missing_before_it_has_its_mark() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let mut record = world.pool.session(id).unwrap().clone();
    record.lifecycle = Lifecycle::Starting;
    world.emit(Event::SessionCreated(Box::new(record)));
    assert_eq!(world.see(&up(1, vec![]), &[]).iter().filter_map(Event::session).count(), 0);
    assert_eq!(world.lifecycle(id), Lifecycle::Starting);
}

#[test]
fn what_is_known_to_live_keeps_its_slot_until_the_reaper_ended_it() {
    for (state, dead, end) in [
        (up(1, vec![]), vec![], Lifecycle::Stopped),
        (TmuxState::default(), vec![server(1).process], Lifecycle::Lost),
    ] {
        let mut world = World::default();
        let id = world.live("a", server(1), 1);
        for now in [1000, 3000, 9000] {
            world.now = now;
            world.see(&state, &dead);
            assert_eq!(world.lifecycle(id), Lifecycle::Draining);
        }
        let exited = dead.iter().copied().collect();
        let facts = stale::Facts {
            state: &state,
            exited: &exited,
            now: Timestamp(world.now),
            listed_from: Some(Timestamp(world.now)),
            grace_ms: 1,
        };
        let kinds: Vec<_> = stale::candidates(&world.pool, &facts).iter().map(|c| c.kind).collect();
        assert_eq!(kinds, [protocol::reap::CandidateKind::Leftover]);
        world.see(&state, &[dead, vec![process(101)]].concat());
        assert_eq!(world.lifecycle(id), end);
    }
}

#[test]
fn a_listing_that_began_before_the_session_says_nothing_of_it() {
    let mut world = World { now: 5000, ..World::default() };
    let id = world.live("a", server(1), 1);
    world.now = 4000;
    world.see(&up(1, vec![]), &[process(101)]);
    assert_eq!(world.lifecycle(id), Lifecycle::Live);
}

#[test]
fn t02_a_diff_says_nothing_of_what_it_does_not_name() {
    let mut world = World::default();
    let (one, two) = (world.live("one", server(1), 1), world.live("two", server(1), 2));
    let before = up(1, vec![pane(&world, one, 1), pane(&world, two, 2)]);
    let changes = [Change::PaneGone(PaneId(1)), Change::SessionGone(TmuxSessionId(1))];
    let touched = touched(&world.pool, &before, &changes).unwrap();
    assert_eq!(touched.sessions, BTreeSet::from([one]));
    // As little as was read: the other is not in it either.
    let events = world.see_only(&up(1, vec![]), Some(&touched));
    let drained: Vec<_> = events.iter().filter_map(Event::session).collect();
    assert_eq!(drained, [one]);
    assert_eq!(world.lifecycle(two), Lifecycle::Live);
    assert_eq!(pool::reconcile::touched(&world.pool, &before, &[Change::Server(Server::Absent)]), None);
}

#[test]
fn w05_a_session_renamed_in_tmux_keeps_its_record() {
    let mut world = World::default();
    let (one, two) = (world.live("one", server(1), 1), world.live("two", server(1), 2));
    let mut state = up(1, vec![pane(&world, one, 1), pane(&world, two, 2)]);
    let mut named = |world: &mut World, name: &str| {
        state
            .sessions
            .insert(TmuxSessionId(1), TmuxSession { name: name.to_owned(), created_at: 1, attached: 0 });
        world.see(&state, &[]);
        world.pool.session(one).unwrap().name.to_string()
    };
    assert_eq!(named(&mut world, "uno"), "uno");
    assert_eq!(named(&mut world, "Not A Name"), "uno");
    assert_eq!(named(&mut world, "two"), "uno", "taken");
    assert_eq!(named(&mut world, "one"), "one", "its own workspace");
    assert_eq!(world.pool.named("uno"), None);
}

#[test]
fn w32_a_program_whose_pane_went_with_it_was_ended_by_tmux() {
    let ends = |dead: bool, server_dead: bool| {
        let mut world = World::default();
        let id = world.live("one", server(1), 1);
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
    let mut world = World::default();
    let id = world.live("one", server(1), 1);
    let (at, mut seen) = pane(&world, id, 1);
    (seen.exited, seen.exit_signal) = (true, Some(9));
    let state = up(1, vec![(at, seen)]);
    assert_eq!(pool::reconcile::suspects(&world.pool, &state, None).count(), 1);
    world.see(&state, &[process(101)]);
    let session = world.pool.session(id).unwrap();
    assert_eq!((session.lifecycle, session.reason), (Lifecycle::Draining, Some(Reason::Exited)));
    assert_eq!(session.exit.and_then(|exit| exit.signal), Some(9));
}

#[test]
fn t02_absence_with_the_processs_end_is_proof_at_once() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    world.see(&up(1, vec![]), &[process(101)]);
    assert_eq!(world.lifecycle(id), Lifecycle::Stopped);
}

#[test]
fn t01_unknown_and_silence_remove_nothing() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
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
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
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
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let there = pane(&world, id, 1);
    world.see(&up(1, vec![]), &[]);
    world.see(&up(1, vec![there]), &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Live);
}

#[test]
fn w13_a_tag_of_an_ended_incarnation_is_removed_and_never_adopted() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let (number, old) = pane(&world, id, 1);
    world.emit(Event::SessionStopped { session: id, reason: Reason::Restarted, exit: None });
    let (tag, now) = (world.tag(), Timestamp(world.now));
    let events = admit::next_incarnation(world.pool.session(id).unwrap(), tag, now);
    world.emit_all(events);
    let state = up(1, vec![(number, old)]);
    world.see(&state, &[]);
    assert_eq!(world.lifecycle(id), Lifecycle::Starting);
    let facts = stale::Facts {
        state: &state,
        exited: &BTreeSet::new(),
        now: Timestamp(world.now),
        listed_from: Some(Timestamp(world.now)),
        grace_ms: 1,
    };
    let found = stale::candidates(&world.pool, &facts);
    assert_eq!(
        found.iter().map(|c| (c.kind, c.pane)).collect::<Vec<_>>(),
        [(protocol::reap::CandidateKind::RetiredTag, Some(number))]
    );
}

#[test]
fn p06_a_pane_without_a_record_is_never_a_candidate() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let (number, mut stranger) = pane(&world, id, 7);
    stranger.tag = Some(Tag([0xaa; 16]));
    stranger.dead = true;
    let state = up(1, vec![pane(&world, id, 1), (number, stranger)]);
    let facts = stale::Facts {
        state: &state,
        exited: &BTreeSet::new(),
        now: Timestamp(world.now),
        listed_from: Some(Timestamp(world.now)),
        grace_ms: 1,
    };
    assert_eq!(stale::candidates(&world.pool, &facts), vec![]);
}

#[test]
fn w02_an_id_is_never_used_twice() {
    let mut world = World::default();
    let first = world.create("a").unwrap();
    world.emit(Event::SessionDeleted {
        session: first,
        reason: Reason::ApiDelete,
        mode: protocol::session::DeleteMode::KillTmux,
        tmux_alive: false,
    });
    let mut restored = Pool::default();
    world.pool.replicate().iter().for_each(|s| restored.apply(s));
    world.pool = restored;
    assert_eq!(world.create("a"), Some(SessionId(first.0 + 1)));
}

#[test]
fn p22_slots_are_reserved_with_the_record() {
    let mut world = World::default();
    let made = (0..6).filter_map(|n| world.create(&format!("s{n}"))).count();
    assert_eq!(made, settings().max_sessions);
}

#[test]
fn names_and_workspaces_share_one_namespace() {
    let mut world = World::default();
    let launch = |tag| Launch { tag, now: Timestamp(0), stamp: "x" };
    let asked = New {
        name: Some("a".into()),
        workspace: Some("w".into()),
        command: vec!["cat".into()],
        ..New::default()
    };
    let Ok(Admitted::Create(made)) = admit::new(&world.pool, &settings(), &asked, &launch(Tag([1; 16])))
    else {
        panic!()
    };
    world.emit_all(made.events);
    assert_eq!(world.create("w"), None);
    assert_eq!(world.create("a"), None);
    let reuse = New { workspace: Some("w".into()), reuse: true, ..asked };
    let again = admit::new(&world.pool, &settings(), &reuse, &launch(Tag([2; 16])));
    assert_eq!(again, Ok(Admitted::Existing(made.session)));
}

fn send(world: &mut World, id: SessionId, text: &str, key: Option<&str>) -> Result<u64, protocol::ErrorCode> {
    let asked = Send {
        session: SessionRef(id.to_string()),
        body: text.into(),
        kind: "prompt".into(),
        key: key.map(str::to_owned),
        origin: "test".into(),
        ttl_ms: None,
        enter: true,
    };
    let digest = text.bytes().map(u64::from).sum();
    let body = admit::Body { bytes: text.as_bytes().to_vec(), digest };
    let session = world.pool.session(id).unwrap().clone();
    let place = (Seq(world.pool.seq().0 + 1), Timestamp(world.now));
    match admit::send(&world.pool, &settings(), (&session, &asked, &body), place) {
        Ok(admit::Sent::Queued(message)) => {
            let id = message.id.0;
            world.emit(Event::MessageQueued(message));
            Ok(id)
        }
        Ok(admit::Sent::Existing(id)) => Ok(id.0),
        Err(refusal) => Err(refusal.code),
    }
}

#[test]
fn prompts_keep_their_order_and_one_is_in_flight() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    let first = send(&mut world, id, "one", None).unwrap();
    let second = send(&mut world, id, "two", Some("k")).unwrap();
    assert_eq!(send(&mut world, id, "two", Some("k")), Ok(second), "the key makes it the same message");
    assert_eq!(send(&mut world, id, "other", Some("k")), Err(protocol::ErrorCode::Conflict));
    let token = Token { epoch: Epoch(1), n: 1 };
    let message = queue::next(&world.pool, id).unwrap().clone();
    assert_eq!(message.id.0, first);
    world.emit(queue::typing(&message, token));
    assert_eq!(queue::next(&world.pool, id), None);
    let doubt = queue::recover(&world.pool);
    world.emit_all(doubt);
    assert_eq!(queue::next(&world.pool, id), None, "what is in doubt holds its lane");
    let message = world.pool.message(message.id).unwrap().clone();
    world.emit(queue::moved(&message, MessageState::Done, None));
    assert_eq!(queue::next(&world.pool, id).unwrap().id.0, second);
    send(&mut world, id, "three", None).unwrap();
    send(&mut world, id, "four", None).unwrap();
    assert_eq!(send(&mut world, id, "five", None), Err(protocol::ErrorCode::Refused), "the queue is full");
}

#[test]
fn a_session_that_is_over_takes_no_messages() {
    let mut world = World::default();
    let id = world.live("a", server(1), 1);
    world.emit(Event::SessionStopped { session: id, reason: Reason::Exited, exit: None });
    assert_eq!(send(&mut world, id, "late", None), Err(protocol::ErrorCode::Refused));
}

proptest! {
    #[test]
    fn i2_nothing_can_leave_paste_mode(text in ".*") {
        let clean = queue::printable(&text);
        prop_assert!(clean.chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
        prop_assert_eq!(queue::printable(&clean), clean.clone());
        let wanted: String = text.replace("\r\n", "\n").chars().filter(|c| !c.is_control()).collect();
        prop_assert_eq!(clean.chars().filter(|c| !c.is_control()).collect::<String>(), wanted);
    }
}

fn exit() -> impl Strategy<Value = Option<Exit>> {
    prop_oneof![
        Just(None),
        (0..256).prop_map(|code| Some(Exit { code: Some(code), signal: None, at: Timestamp(5) })),
    ]
}

fn reason() -> impl Strategy<Value = Reason> {
    prop::sample::select(vec![Reason::Exited, Reason::Killed, Reason::Restarted, Reason::TmuxGone])
}

/// What happens to the session with this number; it may not exist.
fn session_event() -> impl Strategy<Value = Event> {
    let id = (1_u64..6).prop_map(SessionId);
    let run = (0_u8..6, 0_u32..3, any::<bool>()).prop_map(|(tag, n, dead)| Incarnation {
        server: (n > 0).then(|| server(n)),
        pane: Some(PaneId(n)),
        init: Some(process(100 + n)),
        dead,
        ..Incarnation::intended(Tag([tag; 16]), Timestamp(u64::from(n)))
    });
    (id, run, reason(), exit(), 0..9).prop_map(|(session, incarnation, reason, exit, which)| match which {
        0 => Event::SessionLive { session, incarnation, recovered: true },
        1 => Event::SessionStarting { session, incarnation, incarnations: 2, restarts: 1 },
        2 => Event::SessionDraining { session, reason, exit, missing_since: Some(Timestamp(3)) },
        3 => Event::SessionStopped { session, reason, exit },
        4 => Event::SessionLost { session, reason, exit },
        5 => Event::SessionFailed { session, reason, detail: "why".into(), exit },
        6 => Event::SessionObserved {
            session,
            at: Timestamp(9),
            dead: true,
            attached: 2,
            current_command: Some("vim".into()),
        },
        7 => Event::SessionRenamed { session, name: "renamed".parse().unwrap() },
        _ => Event::TagRetired { tag: incarnation.tag, session },
    })
}

fn other_event() -> impl Strategy<Value = Event> {
    let op = any::<u8>().prop_map(|n| OpId::Random([n % 4; 16]));
    (op, 0_u64..9, 0..5).prop_map(|(op, n, which)| match which {
        0 => Event::OperationBegun { op, digest: n, session: SessionId(n), at: Timestamp(n) },
        1 => Event::OperationDone { op, digest: n, reply: vec![1], at: Timestamp(n) },
        2 => Event::OperationForgotten { op },
        3 => Event::TmuxServerChanged { server: Some(server(1)) },
        _ => Event::PoolStarted { epoch: Epoch(n), build: "b".into(), boot: "x".into() },
    })
}

#[derive(Debug, Clone)]
enum Step {
    New(u8),
    Send(u64),
    Fact(Event),
    Message(u64, MessageState),
}

fn step() -> impl Strategy<Value = Step> {
    let states = vec![MessageState::Typing, MessageState::Queued, MessageState::InDoubt, MessageState::Done];
    prop_oneof![
        (0_u8..6).prop_map(Step::New),
        (1_u64..6).prop_map(Step::Send),
        session_event().prop_map(Step::Fact),
        other_event().prop_map(Step::Fact),
        (1_u64..30, prop::sample::select(states)).prop_map(|(id, state)| Step::Message(id, state)),
    ]
}

fn play(steps: Vec<Step>) -> (World, Vec<Stamped>) {
    let mut world = World::default();
    let mut log = Vec::new();
    for step in steps {
        world.now += 400;
        match step {
            Step::New(n) => {
                world.create(&format!("s{n}"));
            }
            Step::Send(id) => {
                if world.pool.session(SessionId(id)).is_some() {
                    assert_ne!(send(&mut world, SessionId(id), "text", None), Ok(0));
                }
            }
            Step::Fact(event) => log.push(world.emit(event)),
            Step::Message(id, state) => {
                if let Some(message) = world.pool.message(protocol::MessageId(id)).cloned() {
                    log.push(world.emit(queue::moved(&message, state, Some("why"))));
                }
            }
        }
    }
    (world, log)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn law_1_the_states_events_give_the_state(steps in vec(step(), 0..60)) {
        let (world, _) = play(steps);
        let mut again = Pool::default();
        world.pool.replicate().iter().for_each(|s| again.apply(s));
        prop_assert_eq!(again, world.pool);
    }

    #[test]
    fn law_2_reconciling_twice_finds_nothing_new(
        steps in vec(step(), 0..60), answer in 0_u32..4, there in vec((0_u8..6, any::<bool>(), any::<bool>()), 0..5),
        exited in vec(0_u32..110, 0..40),
    ) {
        let (mut world, _) = play(steps);
        let panes = there.into_iter().enumerate().map(|(n, (tag, known, dead))| {
            let n = u32::try_from(n).unwrap();
            let tag = known.then_some(Tag([tag; 16]));
            (PaneId(n), TmuxPane {
                session: TmuxSessionId(n), window: WindowId(n), tag, process: Some(process(100 + n)), pid: 100 + n,
                dead, exited: dead, exit_status: dead.then_some(3), exit_signal: None, in_mode: false, width: 1, height: 1,
                current_command: None, current_dir: None, detached: false,
            })
        }).collect();
        let state = match answer { 0 => TmuxState::default(), n => up(n, panes) };
        let exited: Vec<ProcId> = exited.into_iter().map(process).collect();
        world.see(&state, &exited);
        world.see(&state, &exited);
        prop_assert_eq!(world.see(&state, &exited), vec![]);
    }

    #[test]
    fn law_3_applying_twice_is_applying_once(steps in vec(step(), 0..40), event in session_event()) {
        let (mut world, _) = play(steps);
        let stamped = world.emit(event);
        let once = world.pool.clone();
        world.pool.apply(&stamped);
        prop_assert_eq!(world.pool, once);
    }

    #[test]
    fn law_4_one_holder_in_order_with_growing_tokens(moves in vec((0_u64..3, any::<bool>(), 0_usize..8), 0..80)) {
        let mut table = LockTable::new(Epoch(7));
        let mut lines: BTreeMap<u64, Vec<Ticket>> = BTreeMap::new();
        let mut newest = Token::default();
        for (n, (session, asks, which)) in moves.into_iter().enumerate() {
            let line = lines.entry(session).or_default();
            let granted = if asks {
                let ticket = Ticket(n as u64);
                line.push(ticket);
                table.ask(SessionId(session), ticket, "test")
            } else if line.is_empty() {
                table.release(SessionId(session), Ticket(9999))
            } else {
                let left = line.remove(which % line.len());
                table.release(SessionId(session), left)
            };
            if let Some(grant) = granted {
                prop_assert!(grant.token > newest);
                newest = grant.token;
                prop_assert_eq!(Some(&grant.ticket), line.first());
                prop_assert!(table.holds(SessionId(session), grant.token));
            }
            prop_assert_eq!(table.holder(SessionId(session)).is_some(), !line.is_empty());
        }
    }
}
