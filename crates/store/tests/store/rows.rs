//! What is committed is what the next open finds.

use proptest::prelude::*;
use protocol::{Event, MessageId, Seq};
use redb::backends::InMemoryBackend;
use store::{Store, StoreError};

use crate::backend::Disk;
use crate::world::{Batch, Expected, World};

fn commit(store: &mut Store, world: &World, batch: &Batch) {
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_open_finds_the_state_of_the_last_commit(
        seed: u64,
        batches in prop::collection::vec(prop::collection::vec(any::<u64>(), 0..12), 1..12),
        reopen in 1usize..4,
    ) {
        let disk = Disk::default();
        let mut world = World::new(seed);
        let mut store = Store::with_backend(disk.clone()).unwrap().0;
        for (n, choices) in batches.iter().enumerate() {
            let mut batch = Batch::default();
            for choice in choices {
                world.step(*choice, &mut batch);
            }
            commit(&mut store, &world, &batch);
            if n % reopen == 0 {
                store.close().unwrap();
                let (again, loaded) = Store::with_backend(disk.clone()).unwrap();
                prop_assert_eq!(&Expected::found(&again, loaded), &world.now);
                store = again;
            }
        }
    }
}

#[test]
fn without_events_nothing_is_written() {
    let disk = Disk::default();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let before = disk.writes();
    store.commit(&World::new(1).now.pool, &[], &[]).unwrap();
    assert_eq!(disk.writes(), before);
}

#[test]
fn a_change_of_state_does_not_rewrite_the_body() {
    let disk = Disk::default();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut world = World::new(1);
    let mut batch = Batch::default();
    world.step(0, &mut batch);
    while world.now.bodies.values().all(|body| body.len() < 20_000) {
        world.step(13_000, &mut batch);
    }
    commit(&mut store, &world, &batch);
    let (id, body) = world.now.bodies.iter().find(|(_, body)| body.len() >= 20_000).unwrap();
    let (id, needle) = (*id, body[100..164].to_vec());
    let from = disk.writes();
    let session = world.now.pool.message(id).unwrap().session;
    let (state, token) = (protocol::MessageState::Typing, None);
    let mut batch = Batch::default();
    world.emit(Event::MessageChanged { id, session, state, token, attempts: 1, reason: None }, &mut batch);
    commit(&mut store, &world, &batch);
    assert!(disk.writes() > from);
    assert!(!disk.written_since(from, &needle), "the body was written again");
    assert!(disk.written_since(0, &needle), "the body was written once");
}

#[test]
fn a_message_that_is_queued_again_is_what_it_was() {
    let disk = Disk::default();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut world = World::new(1);
    let mut batch = Batch::default();
    world.step(0, &mut batch);
    world.step(13_000, &mut batch);
    commit(&mut store, &world, &batch);
    let queued = batch.events[1].event.clone();
    let (id, session) = (world.now.pool.messages().next().unwrap().id, protocol::SessionId(1));
    let (state, token) = (protocol::MessageState::Done, None);
    let mut change = Batch::default();
    world.emit(Event::MessageChanged { id, session, state, token, attempts: 1, reason: None }, &mut change);
    commit(&mut store, &world, &change);
    let mut again = Batch { events: vec![], bodies: batch.bodies };
    world.emit(queued, &mut again);
    commit(&mut store, &world, &again);
    drop(store);
    let (store, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(Expected::found(&store, loaded), world.now);
}

#[test]
fn a_message_without_its_body_is_refused_and_latches() {
    let mut store = Store::with_backend(InMemoryBackend::new()).unwrap().0;
    let mut world = World::new(1);
    let mut batch = Batch::default();
    world.step(0, &mut batch);
    world.step(13_000, &mut batch);
    let refused = store.commit(&world.now.pool, &batch.events, &[]);
    assert!(matches!(refused, Err(StoreError::NoBody(_))), "{refused:?}");
    assert!(matches!(store.commit(&world.now.pool, &[], &[]), Err(StoreError::Latched)));
    assert!(matches!(store.body(MessageId(1)), Err(StoreError::Latched)));
    assert!(matches!(store.events_since(Seq(0), 1), Err(StoreError::Latched)));
    assert!(matches!(store.oldest_seq(), Err(StoreError::Latched)));
    assert!(matches!(store.trim_journal(0), Err(StoreError::Latched)));
    assert!(matches!(store.close(), Err(StoreError::Latched)));
}

#[test]
fn the_journal_is_read_in_parts_and_trimmed_from_its_old_end() {
    let mut store = Store::with_backend(InMemoryBackend::new()).unwrap().0;
    assert_eq!(store.oldest_seq().unwrap(), None);
    let mut world = World::new(2);
    let mut batch = Batch::default();
    for _ in 0..10_000 {
        world.emit(Event::WatcherLost { reason: "gone".to_owned() }, &mut batch);
    }
    commit(&mut store, &world, &batch);
    let part = store.events_since(Seq(7), 3).unwrap();
    assert_eq!(part.iter().map(|e| e.seq.0).collect::<Vec<_>>(), [8, 9, 10]);
    assert_eq!(store.events_since(Seq(10_000), 3).unwrap(), []);
    assert_eq!(store.trim_journal(10_000).unwrap(), 0);
    assert_eq!(store.trim_journal(100).unwrap(), 4096);
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(4097)));
    while store.trim_journal(100).unwrap() > 0 {}
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(9901)));
    assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap().len(), 100);
    assert_eq!(store.body(MessageId(1)).unwrap(), None);
}
