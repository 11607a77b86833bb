//! Damaged files and damaged records.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};

use protocol::event::AgentEvent;
use protocol::{Event, MessageId, MessageState, Seq};
use redb::{Database, ReadableDatabase, TableDefinition};
use store::{Store, StoreError, Table};

use crate::backend::Disk;
use crate::world::{Batch, Expected, Rng, World};

/// Flips in a normal run; `POOL_BIT_FLIPS` asks for more.
const FLIPS: u64 = 500;

/// A closed database with a history in it, and next to no free space.
fn closed(seed: u64) -> (World, Disk) {
    let disk = Disk::default();
    let mut world = World::new(seed);
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    for _ in 0..20 {
        let batch = world.batch(8);
        store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    }
    store.close().unwrap();
    let mut db = raw(&disk);
    while db.compact().unwrap() {}
    db.close().unwrap();
    (world, disk)
}

#[test]
fn d8_a_flipped_bit_is_reported_or_harmless() {
    let (world, disk) = closed(5);
    let bytes = disk.bytes();
    let mut rng = Rng(99);
    let mut reported = 0;
    let flips = env::var("POOL_BIT_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(FLIPS);
    for flip in 0..flips {
        let mut flipped = bytes.clone();
        let at = rng.index(bytes.len());
        flipped[at] ^= 1 << rng.below(8);
        let open = AssertUnwindSafe(|| {
            let (store, loaded) = Store::with_backend(Disk::holding(flipped.clone()))?;
            Ok::<_, StoreError>(Expected::found(&store, loaded))
        });
        match catch_unwind(open) {
            Ok(Ok(found)) => assert_eq!(found, world.now, "flip {flip} at {at}"),
            Ok(Err(StoreError::Damaged(_))) => reported += 1,
            Ok(Err(other)) => panic!("flip {flip} at {at}: {other:?}"),
            Err(_) => panic!("flip {flip} at {at}: a panic"),
        }
    }
    assert!(reported > flips / 8, "the flips hit something: {reported} of {flips}");
}

fn raw(disk: &Disk) -> Database {
    Database::builder().create_with_backend(disk.clone()).unwrap()
}

fn overwrite(disk: &Disk, table: Table, key: &[u8], value: &[u8]) {
    let db = raw(disk);
    let write = db.begin_write().unwrap();
    {
        let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(table.name());
        write.open_table(definition).unwrap().insert(key, value).unwrap();
    }
    write.commit().unwrap();
    db.close().unwrap();
}

fn stored(disk: &Disk, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(table.name());
    let db = raw(disk);
    let read = db.begin_read().unwrap();
    read.open_table(definition).unwrap().get(key).unwrap().map(|row| row.value().to_vec())
}

/// Two sessions and two messages of the first, the second message already typed.
fn small() -> (World, Disk) {
    let disk = Disk::default();
    let mut world = World::new(3);
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut batch = Batch::default();
    world.create(&mut batch);
    world.send(&mut batch);
    let last = world.send(&mut batch);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    let mut batch = Batch::default();
    world.moved(last, MessageState::Typed, &mut batch);
    world.create(&mut batch);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    store.close().unwrap();
    (world, disk)
}

fn last(world: &World) -> MessageId {
    *world.now.messages.keys().next_back().unwrap()
}

fn stored_messages(store: &Store) -> Vec<MessageId> {
    let mut found = Vec::new();
    store
        .each_message(MessageId(0), |message, _| {
            found.push(message.id);
            true
        })
        .unwrap();
    found
}

#[test]
fn d8_a_damaged_record_is_put_aside_and_hides_nothing() {
    let (world, disk) = small();
    let key = 1u64.to_be_bytes();
    overwrite(&disk, Table::Sessions, &key, b"garbage");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        let aside = loaded.quarantined.iter().find(|q| q.table == Table::Sessions.name()).unwrap();
        assert_eq!(aside.key, key);
        assert_eq!(aside.bytes, b"garbage");
        assert!(!aside.why.is_empty());
        assert_eq!(loaded.pool.sessions().map(|s| s.id.0).collect::<Vec<_>>(), [2]);
        assert_eq!(store.quarantined().unwrap(), loaded.quarantined.len() as u64);
        assert_eq!(loaded.pool.next_session(), world.now.pool.next_session(), "no id is given out twice");
        store.close().unwrap();
        assert_eq!(stored(&disk, Table::Sessions, &key), None);
    }
}

#[test]
fn messages_of_a_session_that_is_missing_are_put_aside_with_their_bytes() {
    let (world, disk) = small();
    let last = last(&world).0.to_be_bytes();
    let message = stored(&disk, Table::Messages, &last).unwrap();
    let state = stored(&disk, Table::MessageStates, &last).unwrap();
    overwrite(&disk, Table::Sessions, &1u64.to_be_bytes(), b"garbage");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.quarantined.len(), 4, "a session, two messages, a state");
        for (table, bytes) in [(Table::Messages, &message), (Table::MessageStates, &state)] {
            let mut aside = loaded.quarantined.iter().filter(|q| q.table == table.name());
            let aside = aside.find(|q| q.key == last).unwrap();
            assert_eq!((&aside.bytes, aside.why.as_str()), (bytes, "its session sess_1 is missing"));
        }
        assert_eq!(stored_messages(&store), []);
        assert_eq!(loaded.pool.queue_totals(), (0, 0), "they do not count");
        assert_eq!(loaded.pool.seq(), world.now.pool.seq());
        assert_eq!(store.events_since(Seq(0), 10).unwrap(), world.now.journal, "the journal has no gap");
        store.close().unwrap();
    }
}

#[test]
fn d8_what_was_put_aside_can_be_forgotten() {
    let (_, disk) = small();
    overwrite(&disk, Table::Sessions, &1u64.to_be_bytes(), b"garbage");
    let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
    assert_eq!(store.forget_quarantined().unwrap(), loaded.quarantined.len() as u64);
    assert_eq!((store.quarantined().unwrap(), store.forget_quarantined().unwrap()), (0, 0));
    store.close().unwrap();
    let (store, again) = Store::with_backend(disk).unwrap();
    assert_eq!((again.quarantined, again.pool), (vec![], loaded.pool));
    assert_eq!(store.quarantined().unwrap(), 0);
}

#[test]
fn a_message_whose_state_is_damaged_is_in_doubt() {
    let (world, disk) = small();
    let id = last(&world);
    overwrite(&disk, Table::MessageStates, &id.0.to_be_bytes(), b"");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.quarantined.len(), 1);
        let (message, body) = store.message(id).unwrap().unwrap();
        assert_eq!(message.status.state, MessageState::InDoubt);
        assert_eq!(body, world.now.messages[&id].1);
        let [news] = store.events_since(world.now.pool.seq(), 10).unwrap().try_into().unwrap();
        let Event::MessageChanged { status, .. } = &news.event else { panic!("{news:?}") };
        assert_eq!(**status, message.status);
        let mut expected = world.now.pool.clone();
        expected.apply(&news);
        assert_eq!(loaded.pool, expected);
        store.close().unwrap();
    }
}

#[test]
fn a_state_without_its_message_is_put_aside_with_it() {
    let (world, disk) = small();
    overwrite(&disk, Table::Messages, &last(&world).0.to_be_bytes(), &[1; 40]);
    let (store, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(loaded.quarantined.len(), 2);
    assert_eq!(stored_messages(&store).len(), 1);
    assert_eq!(loaded.pool.seq(), world.now.pool.seq());
}

#[test]
fn a_state_of_no_message_is_put_aside_alone() {
    // Before the first message, between both, behind the last.
    for key in [0_u64, 1, 99] {
        let (world, disk) = small();
        overwrite(&disk, Table::MessageStates, &key.to_be_bytes(), b"whose?");
        let (store, loaded) = Store::with_backend(disk).unwrap();
        assert_eq!(loaded.quarantined.len(), 1);
        assert_eq!(loaded.pool, world.now.pool);
        assert_eq!(stored_messages(&store).len(), 2);
    }
}

#[test]
fn the_number_of_a_damaged_message_is_not_given_out_again() {
    let disk = Disk::default();
    let mut world = World::new(3);
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    let mut batch = Batch::default();
    world.create(&mut batch);
    let id = world.send(&mut batch);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    store.close().unwrap();
    overwrite(&disk, Table::Messages, &id.0.to_be_bytes(), b"rot");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.pool.seq().0, id.0);
        store.close().unwrap();
    }
}

#[test]
fn damage_in_what_is_known_of_an_agent_loses_that_alone() {
    let agents = [Table::Activities, Table::Notes, Table::Thoughts];
    for damaged in agents {
        let disk = Disk::default();
        let mut world = World::new(3);
        let mut store = Store::with_backend(disk.clone()).unwrap().0;
        let mut batch = Batch::default();
        let (session, other) = (world.create(&mut batch), world.create(&mut batch));
        for session in [session, other] {
            let (activity, notes, thought) = (world.activity(6), world.notes(6), world.thought(6));
            let known = [
                AgentEvent::ActivityChanged { session, activity, turned: true },
                AgentEvent::AgentNoted { session, notes },
                AgentEvent::ThoughtPublished { session, thought },
            ];
            known.into_iter().for_each(|event| world.emit(Event::Agent(event), &mut batch));
        }
        store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
        store.close().unwrap();
        overwrite(&disk, damaged, &session.0.to_be_bytes(), b"rot");
        for _ in 0..2 {
            let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
            let aside: Vec<_> = loaded.quarantined.iter().map(|q| (q.table.as_str(), &q.bytes[..])).collect();
            assert_eq!(aside, [(damaged.name(), &b"rot"[..])]);
            let pool = &loaded.pool;
            let known = |session| {
                [
                    pool.activity(session).is_some(),
                    pool.notes(session).is_some(),
                    pool.thought(session).is_some(),
                ]
            };
            assert_eq!(known(session), agents.map(|table| table != damaged));
            assert_eq!(known(other), [true; 3]);
            assert_eq!(pool.session(session), world.now.pool.session(session));
            store.close().unwrap();
        }
    }
}

#[test]
fn a_record_in_the_wrong_place_is_found_out() {
    let (_, disk) = small();
    let first = stored(&disk, Table::Sessions, &1u64.to_be_bytes()).unwrap();
    overwrite(&disk, Table::Sessions, &2u64.to_be_bytes(), &first);
    let (_, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(loaded.quarantined.len(), 1);
}

#[test]
fn damage_in_the_journal_or_a_body_fails_that_read_alone() {
    let (world, disk) = small();
    // The session, two messages, the change, another session.
    overwrite(&disk, Table::Journal, &4u64.to_be_bytes(), b"?");
    let (store, _) = Store::with_backend(disk).unwrap();
    assert_eq!(store.events_since(Seq(0), 10).unwrap().len(), 3);
    assert!(matches!(store.events_since(Seq(3), 10), Err(StoreError::Record { .. })));
    assert_eq!(store.events_since(Seq(4), 10).unwrap()[0].seq, Seq(5));
    assert!(store.message(last(&world)).unwrap().is_some());
}

#[test]
fn damage_in_what_there_is_one_of_is_fatal() {
    for key in [b"seq".as_slice(), b"floor", b"next_session", b"schema"] {
        let (_, disk) = small();
        overwrite(&disk, Table::Meta, key, b"garbage");
        let opened = Store::with_backend(disk);
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
    }
}

#[test]
fn another_kind_of_file_is_damage() {
    let disk = Disk::holding(b"-- a database of another kind --".repeat(2000));
    assert!(matches!(Store::with_backend(disk), Err(StoreError::Damaged(_))));
}
