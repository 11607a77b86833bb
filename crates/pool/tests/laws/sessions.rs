//! Requests about sessions.

use pool::session::{CreateOutcome, TakenIds};
use pool::{Pool, QueueRules, session};
use protocol::clock::{Clock, ClockStep};
use protocol::request::New;
use protocol::{Event, Exit, OpId, Reason, SessionId, Tag, Timestamp};

use crate::queue::{asked, send};
use crate::world::{World, launch, server, settings};

const HOUR: u64 = 3_600_000;

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
fn a_directory_is_taken_by_a_session_on_record_and_by_one_that_is_created_meanwhile() {
    let mut world = World::default();
    let (kept, removed) = (world.create("kept").unwrap(), world.create("removed").unwrap());
    world.emit(Event::SessionDeleted {
        session: removed,
        reason: Reason::ApiDelete,
        mode: protocol::session::DeleteMode::KillTmux,
        tmux_alive: false,
    });
    let taken = TakenIds::new(&world.pool);
    let created = world.create("created").unwrap();
    let later = SessionId(created.0 + 1);
    assert_eq!([kept, removed, created, later].map(|id| taken.contains(id)), [true, false, true, true]);
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
    let asked = New {
        name: Some("a".into()),
        workspace: Some("w".into()),
        command: vec!["cat".into()],
        ..New::default()
    };
    let Ok(CreateOutcome::Create(made)) =
        session::create(&world.pool, &settings(), &asked, &launch(Tag([1; 16]), 0))
    else {
        panic!()
    };
    world.emit_all(made.events);
    assert_eq!(world.create("w"), None);
    assert_eq!(world.create("a"), None);
    let reuse = New { workspace: Some("w".into()), reuse: true, ..asked };
    let again = session::create(&world.pool, &settings(), &reuse, &launch(Tag([2; 16]), 0));
    assert_eq!(again, Ok(CreateOutcome::Existing(made.session)));
}

#[test]
fn p01_a_message_is_an_activity_of_its_session_and_a_load_turns_none_back() {
    let mut world = World { now: 8 * HOUR, ..World::default() };
    let id = world.live("a", server(1), 1);
    let post = |world: &mut World, op: &str| {
        send(world, &QueueRules::default(), &asked(id, "job"), &OpId::Named(op.into())).unwrap();
    };
    let is_kept = |world: &World| {
        let active_at = |pool: &Pool| pool.session(id).unwrap().last_activity_at;
        assert_eq!(active_at(&world.pool), Timestamp(world.now));
        assert_eq!(active_at(&world.rebuilt()), Timestamp(world.now));
    };
    world.now = 9 * HOUR;
    post(&mut world, "first");
    is_kept(&world);
    // The clock is set back by an hour.
    let step = ClockStep::new(Timestamp(10 * HOUR), Timestamp(9 * HOUR));
    world.emit(Event::ClockRead(Clock { steps: vec![step], ..Clock::default() }));
    world.now = 9 * HOUR + 1000;
    post(&mut world, "second");
    is_kept(&world);
    world.now = 9 * HOUR + 2000;
    world.emit(Event::SessionStopped { session: id, reason: Reason::Exited, exit: None });
    is_kept(&world);
}

#[test]
fn t05_a_hangup_that_is_found_before_the_end_of_its_server_is_no_activity() {
    for (signal, is_activity) in [(1, false), (15, true)] {
        let mut world = World::default();
        world.live("web", server(1), 1);
        let session = SessionId(1);
        let before = world.pool.session(session).unwrap().last_activity_at;
        world.now += HOUR;
        let exit = Some(Exit { code: None, signal: Some(signal), at: Timestamp(world.now) });
        world.emit(Event::SessionDraining { session, reason: Reason::Exited, exit, missing_since: None });
        world.emit(Event::SessionLost { session, reason: Reason::ServerGone, exit });
        let active_at = world.pool.session(session).unwrap().last_activity_at;
        assert_eq!(active_at > before, is_activity, "{signal}: {active_at:?}");
    }
}
