//! Requests about sessions.

use pool::session::CreateOutcome;
use pool::{Pool, session};
use protocol::request::New;
use protocol::session::Reason;
use protocol::{Event, SessionId, Tag};

use crate::world::{World, launch, settings};

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
