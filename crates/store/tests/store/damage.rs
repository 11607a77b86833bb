//! Damaged files and damaged records.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{env, fs};

use protocol::{AgentEvent, Event, MessageId, MessageState, Seq};
use redb::{Database, ReadableDatabase, TableDefinition};
use store::{Store, StoreError, Table};

use crate::backend::Disk;
use crate::files::data;
use crate::history::{Expected, History, fresh};
use crate::rng::Rng;

/// Number of flips in a normal run; `POOL_BIT_FLIPS` overrides it.
const FLIPS: u64 = 500;

/// Returns a closed database with a history and hardly any free space.
fn closed(seed: u64) -> (History, Disk) {
    let (disk, mut store, mut history) = fresh(seed);
    for _ in 0..20 {
        history.steps(8);
        history.commit(&mut store).unwrap();
    }
    store.close().unwrap();
    let mut db = raw(&disk);
    while db.compact().unwrap() {}
    db.close().unwrap();
    (history, disk)
}

#[test]
fn d8_a_flipped_bit_is_reported_or_harmless() {
    let (history, disk) = closed(5);
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
            Ok(Ok(found)) => assert_eq!(found, history.now, "flip {flip} at {at}"),
            Ok(Err(StoreError::Damaged(_))) => reported += 1,
            Ok(Err(other)) => panic!("flip {flip} at {at}: {other:?}"),
            Err(_) => panic!("flip {flip} at {at}: a panic"),
        }
    }
    assert!(reported > flips / 8, "the flips hit something: {reported} of {flips}");
}

/// The checksum of its record would quarantine that alone; the one of its page shows that the file is not sound.
#[test]
fn d8_a_file_with_a_flipped_bit_in_a_message_is_refused_as_a_whole() {
    let needle = b"needle in a haystack";
    let (disk, mut store, mut history) = fresh(3);
    history.create();
    let id = history.send();
    history.set_body(id, needle.to_vec());
    // Later commits, so that none that is intact is left to return to.
    for _ in 0..4 {
        history.commit(&mut store).unwrap();
        history.create();
    }
    store.close().unwrap();
    let (dir, mut bytes) = (tempfile::tempdir().unwrap(), disk.bytes());
    let path = dir.path().join("pool.redb");
    fs::write(&path, &bytes).unwrap();
    let (store, loaded) = Store::open(&path, |_| {}).unwrap();
    assert_eq!(loaded.quarantined, []);
    store.close().unwrap();
    let copies = bytes.windows(needle.len()).enumerate().filter(|(_, found)| found == needle);
    let copies: Vec<usize> = copies.map(|(at, _)| at).collect();
    assert!(!copies.is_empty());
    copies.into_iter().for_each(|at| bytes[at] ^= 1);
    fs::write(&path, &bytes).unwrap();
    let opened = Store::open(&path, |_| {});
    assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
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

/// Returns a database with two sessions and two messages of the first, the second of which is already typed.
fn small() -> (History, Disk) {
    let (disk, mut store, mut history) = fresh(3);
    history.create();
    history.send();
    let last = history.send();
    history.commit(&mut store).unwrap();
    history.change_state(last, MessageState::Typed);
    history.create();
    history.commit(&mut store).unwrap();
    store.close().unwrap();
    (history, disk)
}

fn last(history: &History) -> MessageId {
    *history.now.messages.keys().next_back().unwrap()
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
fn d8_a_damaged_record_is_quarantined_and_hides_nothing() {
    let (history, disk) = small();
    let key = 1u64.to_be_bytes();
    overwrite(&disk, Table::Sessions, &key, b"garbage");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        let quarantined = loaded.quarantined.iter().find(|q| q.table == Table::Sessions.name()).unwrap();
        assert_eq!(quarantined.key, key);
        assert_eq!(quarantined.bytes, b"garbage");
        assert!(!quarantined.why.is_empty());
        assert_eq!(loaded.pool.sessions().map(|s| s.id.0).collect::<Vec<_>>(), [2]);
        assert_eq!(store.quarantined().unwrap(), loaded.quarantined.len() as u64);
        assert_eq!(loaded.pool.next_session(), history.now.pool.next_session(), "no id is given out twice");
        store.close().unwrap();
        assert_eq!(stored(&disk, Table::Sessions, &key), None);
    }
}

/// `BLESS=1` rewrites the file of the system tests: two sessions, one of them damaged.
#[test]
fn d8_the_damaged_file_of_the_system_tests_has_one_session_left() {
    let file = data("../../../../tests/data/damaged.redb");
    if env::var_os("BLESS").is_some() {
        let (disk, mut store, mut history) = fresh(3);
        history.create();
        history.create();
        history.commit(&mut store).unwrap();
        store.close().unwrap();
        overwrite(&disk, Table::Sessions, &1u64.to_be_bytes(), b"garbage");
        let mut db = raw(&disk);
        while db.compact().unwrap() {}
        db.close().unwrap();
        fs::write(&file, disk.bytes()).unwrap();
    }
    let (store, loaded) = Store::with_backend(Disk::holding(fs::read(&file).unwrap())).unwrap();
    assert_eq!(loaded.quarantined.len(), 1);
    assert_eq!(loaded.pool.sessions().map(|s| s.id.0).collect::<Vec<_>>(), [2]);
    store.close().unwrap();
}

#[test]
fn messages_of_a_missing_session_are_quarantined_with_their_bytes() {
    let (history, disk) = small();
    let last = last(&history).0.to_be_bytes();
    let message = stored(&disk, Table::Messages, &last).unwrap();
    let state = stored(&disk, Table::MessageStates, &last).unwrap();
    overwrite(&disk, Table::Sessions, &1u64.to_be_bytes(), b"garbage");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.quarantined.len(), 4, "a session, two messages, a state");
        for (table, bytes) in [(Table::Messages, &message), (Table::MessageStates, &state)] {
            let mut quarantined = loaded.quarantined.iter().filter(|q| q.table == table.name());
            let quarantined = quarantined.find(|q| q.key == last).unwrap();
            assert_eq!(
                (&quarantined.bytes, quarantined.why.as_str()),
                (bytes, "its session sess_1 is missing")
            );
        }
        assert_eq!(stored_messages(&store), []);
        assert_eq!(loaded.pool.queue_totals(), (0, 0), "they do not count");
        assert_eq!(loaded.pool.seq(), history.now.pool.seq());
        assert_eq!(store.events_since(Seq(0), 10).unwrap(), history.now.journal, "the journal has no gap");
        store.close().unwrap();
    }
}

#[test]
fn d8_quarantined_records_can_be_deleted() {
    let (_, disk) = small();
    overwrite(&disk, Table::Sessions, &1u64.to_be_bytes(), b"garbage");
    let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
    assert_eq!(store.delete_quarantined().unwrap(), loaded.quarantined.len() as u64);
    assert_eq!((store.quarantined().unwrap(), store.delete_quarantined().unwrap()), (0, 0));
    store.close().unwrap();
    let (store, again) = Store::with_backend(disk).unwrap();
    assert_eq!((again.quarantined, again.pool), (vec![], loaded.pool));
    assert_eq!(store.quarantined().unwrap(), 0);
}

#[test]
fn a_message_whose_state_is_damaged_is_in_doubt() {
    let (history, disk) = small();
    let id = last(&history);
    overwrite(&disk, Table::MessageStates, &id.0.to_be_bytes(), b"");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.quarantined.len(), 1);
        let (message, body) = store.message(id).unwrap().unwrap();
        assert_eq!(message.status.state, MessageState::InDoubt);
        assert_eq!(body, history.now.messages[&id].1);
        let [news] = store.events_since(history.now.pool.seq(), 10).unwrap().try_into().unwrap();
        let Event::MessageChanged { status, .. } = &news.event else { panic!("{news:?}") };
        assert_eq!(**status, message.status);
        assert!(
            news.at >= history.now.pool.clock().read_at,
            "trimming takes the journal to be in the order of time"
        );
        let mut expected = history.now.pool.clone();
        expected.apply(&news);
        assert_eq!(loaded.pool, expected);
        store.close().unwrap();
    }
}

#[test]
fn a_state_is_quarantined_with_its_message() {
    let (history, disk) = small();
    overwrite(&disk, Table::Messages, &last(&history).0.to_be_bytes(), &[1; 40]);
    let (store, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(loaded.quarantined.len(), 2);
    assert_eq!(stored_messages(&store).len(), 1);
    assert_eq!(loaded.pool.seq(), history.now.pool.seq());
}

#[test]
fn a_state_without_a_message_is_quarantined_alone() {
    // Ids that no message has, small and large.
    for key in [0_u64, 1, 99] {
        let (history, disk) = small();
        overwrite(&disk, Table::MessageStates, &key.to_be_bytes(), b"whose?");
        let (store, loaded) = Store::with_backend(disk).unwrap();
        assert_eq!(loaded.quarantined.len(), 1);
        assert_eq!(loaded.pool, history.now.pool);
        assert_eq!(stored_messages(&store).len(), 2);
    }
}

#[test]
fn the_number_of_a_damaged_message_is_not_reused() {
    let (disk, mut store, mut history) = fresh(3);
    history.create();
    let id = history.send();
    history.commit(&mut store).unwrap();
    store.close().unwrap();
    overwrite(&disk, Table::Messages, &id.0.to_be_bytes(), b"rot");
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(loaded.pool.seq().0, id.0);
        store.close().unwrap();
    }
}

#[test]
fn damage_in_a_record_about_an_agent_loses_that_record_only() {
    let agents = [Table::Activities, Table::Notes, Table::Thoughts];
    for damaged in agents {
        let (disk, mut store, mut history) = fresh(3);
        let (session, other) = (history.create(), history.create());
        for session in [session, other] {
            let (activity, notes, thought) = (history.activity(6), history.notes(6), history.thought(6));
            let known = [
                AgentEvent::ActivityChanged { session, activity, turned: true },
                AgentEvent::AgentNoted { session, notes },
                AgentEvent::ThoughtPublished { session, thought },
            ];
            known.into_iter().for_each(|event| history.emit(Event::Agent(event)));
        }
        history.commit(&mut store).unwrap();
        store.close().unwrap();
        overwrite(&disk, damaged, &session.0.to_be_bytes(), b"rot");
        for _ in 0..2 {
            let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
            let quarantined: Vec<_> =
                loaded.quarantined.iter().map(|q| (q.table.as_str(), &q.bytes[..])).collect();
            assert_eq!(quarantined, [(damaged.name(), &b"rot"[..])]);
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
            assert_eq!(pool.session(session), history.now.pool.session(session));
            store.close().unwrap();
        }
    }
}

#[test]
fn a_record_in_the_wrong_place_is_detected() {
    let (_, disk) = small();
    let first = stored(&disk, Table::Sessions, &1u64.to_be_bytes()).unwrap();
    overwrite(&disk, Table::Sessions, &2u64.to_be_bytes(), &first);
    let (_, loaded) = Store::with_backend(disk).unwrap();
    assert_eq!(loaded.quarantined.len(), 1);
}

#[test]
fn damage_in_the_journal_fails_the_read_of_that_event_only() {
    let (history, disk) = small();
    // Events: the session, two messages, the change, another session.
    overwrite(&disk, Table::Journal, &4u64.to_be_bytes(), b"?");
    let (store, _) = Store::with_backend(disk).unwrap();
    assert_eq!(store.events_since(Seq(0), 10).unwrap().len(), 3);
    assert!(matches!(store.events_since(Seq(3), 10), Err(StoreError::Record { .. })));
    assert_eq!(store.events_since(Seq(4), 10).unwrap()[0].seq, Seq(5));
    assert!(store.message(last(&history)).unwrap().is_some());
}

#[test]
fn damage_in_a_singleton_is_fatal() {
    for key in [b"seq".as_slice(), b"floor", b"next_session", b"schema"] {
        let (_, disk) = small();
        overwrite(&disk, Table::Meta, key, b"garbage");
        let opened = Store::with_backend(disk);
        assert!(matches!(opened, Err(StoreError::Damaged(_))), "{opened:?}");
    }
}

#[test]
fn a_file_of_another_kind_is_reported_as_damaged() {
    let disk = Disk::holding(b"-- a database of another kind --".repeat(2000));
    assert!(matches!(Store::with_backend(disk), Err(StoreError::Damaged(_))));
}
