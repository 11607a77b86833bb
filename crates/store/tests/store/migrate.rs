//! From earlier schemas: nothing is lost, whatever happens meanwhile, and the old file is kept.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use pool::{Operation, OperationState, Pool};
use protocol::frame::{decode_record, encode_record};
use protocol::life::Policy;
use protocol::{
    ErrorCode, Event, Message, MessageId, MessageState, OpId, Refusal, Reply, Seq, Session, SessionId,
    Stamped, Timestamp, Token,
};
use redb::{Database, ReadableDatabase, TableDefinition};
use serde_json::{Value, json};
use store::care::{check_file, import};
use store::{SCHEMA, Store, StoreError, Table};

use crate::backend::{Disk, Fault};
use crate::crash::open;
use crate::files::{crc32, data};
use crate::rows::rows;
use crate::world::{Expected, Rng, World};

/// A file of this version.
fn old(version: u32) -> Vec<u8> {
    fs::read(data(&format!("v{version}.redb"))).unwrap()
}

#[test]
fn the_file_is_kept_as_it_was() {
    for version in 1..SCHEMA {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.redb");
        let kept = dir.path().join(format!("pool.redb.v{version}"));
        fs::write(&path, old(version)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&kept, "half of a copy, from elsewhere").unwrap();
        for _ in 0..2 {
            Store::open(&path, |_| {}).unwrap().0.close().unwrap();
            assert!(fs::read(&kept).unwrap() == old(version));
            assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        }
        assert_eq!(check_file(&path).unwrap().0, SCHEMA);
        let (store, loaded) = Store::open(&kept, |_| {}).unwrap();
        let whole = open(&Disk::holding(old(version)));
        assert_eq!(Expected::found(&store, loaded), whole, "and it is still good");
    }
}

#[test]
fn nothing_is_changed_where_the_file_cannot_be_kept() {
    for version in 1..SCHEMA {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.redb");
        fs::write(&path, old(version)).unwrap();
        // A directory that has the copy's name.
        fs::create_dir(dir.path().join(format!("pool.redb.v{version}"))).unwrap();
        assert!(Store::open(&path, |_| {}).is_err());
        assert!(fs::read(&path).unwrap() == old(version));
    }
}

/// The number that a file says is its schema's.
fn schema_of(disk: &Disk) -> u32 {
    let db = Database::builder().create_with_backend(Disk::holding(disk.bytes())).unwrap();
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(Table::Meta.name());
    let row = db.begin_read().unwrap().open_table(definition).unwrap().get(&b"schema"[..]).unwrap().unwrap();
    u32::from_be_bytes(row.value()[5..9].try_into().unwrap())
}

#[test]
fn d6_a_power_cut_at_any_write_of_a_migration_loses_nothing() {
    let new = rows(&crate::crash::created());
    for version in 1..SCHEMA {
        let disk = Disk::holding(old(version));
        let whole = open(&disk);
        assert!(whole.messages.len() > 10);
        assert_eq!(whole.journal.is_empty(), version < 3);
        let mut rng = Rng(1);
        let (mut images, mut schemas) = (0, BTreeSet::new());
        for point in 0..=disk.writes() {
            let random = [disk.image(point, &mut rng), disk.image(point, &mut rng)];
            for image in disk.single_images(point).into_iter().chain(random) {
                let survivor = Disk::holding(image);
                schemas.insert(schema_of(&survivor));
                assert_eq!(open(&survivor), whole, "cut at {point}");
                assert_eq!(open(&survivor), whole, "cut at {point}, and opened again");
                assert!(rows(&survivor).keys().eq(new.keys()), "cut at {point}: {:?}", rows(&survivor));
                images += 1;
            }
        }
        assert!(images > 100, "{images}");
        assert_eq!(schemas, BTreeSet::from([version, SCHEMA]), "never anything in between");
    }
}

#[test]
fn d5_a_disk_that_fails_during_a_migration_loses_nothing() {
    for version in 1..SCHEMA {
        let disk = Disk::holding(old(version));
        let whole = open(&disk);
        for nth in 1..=disk.done() {
            let fault = Fault { nth, persistent: false, kind: ErrorKind::StorageFull };
            let disk = Disk::failing(old(version), fault);
            // What it reads in vain at its end does not matter.
            let opened = Store::with_backend(disk.clone());
            if let Err(error) = &opened {
                assert!(matches!(error, StoreError::Io(_) | StoreError::Storage(_)), "{nth}: {error:?}");
            }
            drop(opened);
            assert_eq!(open(&Disk::holding(disk.bytes())), whole, "operation {nth}");
        }
    }
}

#[test]
fn the_journal_begins_anew_and_goes_on() {
    for version in 1..3 {
        let disk = Disk::holding(old(version));
        let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
        assert_eq!(store.oldest_seq().unwrap(), None);
        let mut world = World::new(5);
        world.now = Expected::found(&store, loaded);
        let before = world.now.pool.seq();
        assert_eq!(store.floor().unwrap(), before);
        let batch = world.batch(30);
        store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
        assert_eq!(store.oldest_seq().unwrap(), Some(Seq(before.0 + 1)));
        assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap(), world.now.journal);
        drop(store);
        assert_eq!(open(&disk), world.now);
    }
}

#[test]
fn the_journal_is_carried_over_and_goes_on() {
    let disk = Disk::holding(old(3));
    // Of sessions that are gone: only the journal knows them.
    let events = ["session.full", "session.least", "event.session_policy_changed.full"];
    let last = open(&Disk::holding(old(3))).pool.seq().0;
    for (seq, name) in (last + 1..).zip(events) {
        let event = bytes(3, name);
        let kind = if name.starts_with("session") { vec![2] } else { vec![] };
        let stamp = encode_record(&(Seq(seq), Timestamp(7))).unwrap();
        put(&disk, "journal-3", &seq.to_be_bytes(), &[stamp, kind, event].concat());
    }
    let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
    assert_eq!((store.floor().unwrap(), store.oldest_seq().unwrap()), (Seq(0), Some(Seq(1))));
    let mut world = World::new(5);
    world.now = Expected::found(&store, loaded);
    assert!(world.now.journal.iter().map(|event| event.seq.0).eq(1..=last + 3));
    let told = |name| written(3, &format!("{name}.json"));
    let session = |name| Event::SessionCreated(serde_json::from_str(told(name)).unwrap());
    let policy: Event = serde_json::from_str(told(events[2])).unwrap();
    let carried = store.events_since(Seq(last), 9).unwrap();
    assert!(carried.iter().all(|event| event.at == Timestamp(7)));
    let carried: Vec<_> = carried.into_iter().map(|event| event.event).collect();
    assert_eq!(carried, [session(events[0]), session(events[1]), policy]);
    let batch = world.batch(30);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap(), world.now.journal);
    drop(store);
    assert_eq!(open(&disk), world.now);
}

/// The journal of the fourth schema is this one's.
#[test]
fn the_journal_that_is_still_read_is_left_alone() {
    let disk = Disk::holding(old(4));
    let journal = |disk: &Disk| rows(disk)[Table::Journal.name()];
    let before = journal(&disk);
    let whole = open(&disk);
    assert_eq!(journal(&disk), before);
    assert!(whole.journal.iter().map(|event| event.seq.0).eq(1..=whole.pool.seq().0));
    for agents in ["activities-1", "notes-1", "thoughts-1"] {
        assert_eq!(rows(&disk)[agents], 0);
    }
}

#[test]
fn what_is_damaged_in_the_journal_is_not_passed_over() {
    for damaged in [&b"rot"[..], &[5, 7, 2, 0xff]] {
        let disk = Disk::holding(old(3));
        put(&disk, "journal-3", &5_u64.to_be_bytes(), damaged);
        for _ in 0..2 {
            let (store, _) = Store::with_backend(disk.clone()).unwrap();
            assert_eq!(store.events_since(Seq(0), 99).unwrap().len(), 4);
            let refused = store.events_since(Seq(4), 99);
            assert!(matches!(refused, Err(StoreError::Record { .. })), "{refused:?}");
            assert_eq!(store.events_since(Seq(5), 1).unwrap()[0].seq, Seq(6));
        }
    }
}

#[test]
fn no_place_of_the_old_journal_is_given_out_again() {
    for version in 1..SCHEMA {
        let disk = Disk::holding(old(version));
        let event = Event::WatcherLost { reason: "gone".to_owned() };
        let newest = Stamped { seq: Seq(500), at: Timestamp(1), event };
        put(&disk, &format!("journal-{version}"), &500_u64.to_be_bytes(), &encode_record(&newest).unwrap());
        for _ in 0..2 {
            assert_eq!(open(&disk).pool.seq(), Seq(500));
        }
    }
}

#[test]
fn states_are_carried_over_with_a_step() {
    let (store, _) = Store::with_backend(Disk::holding(old(1))).unwrap();
    let (typing, _) = store.message(MessageId(78)).unwrap().unwrap();
    assert_eq!((typing.status.state, typing.status.attempts), (MessageState::Typing, 2));
    assert_eq!(typing.steps.len(), 2);
    assert_eq!(typing.steps[1], typing.status.step());
}

/// A message as the first schema had it, in a reply: the seventh response.
fn old_reply(message: &Message, changed_at: Timestamp) -> Vec<u8> {
    let m = message.clone();
    let (state, reason) = (MessageState::Queued, None::<String>);
    let old = (
        (m.id, m.session, m.ordinal, m.kind, m.key, m.origin, m.size, m.digest, m.enter),
        (state, 0_u32, None::<Token>, m.created_at, m.expires_at, changed_at, reason),
    );
    [vec![0, 6], encode_record(&old).unwrap()].concat()
}

/// A row as it was written, with what its record holds.
fn put(disk: &Disk, table: &str, key: &[u8], payload: &[u8]) {
    let mut record = [&[1], payload].concat();
    let sum = crc32(&[table.as_bytes(), key, &record].concat());
    record.extend_from_slice(&sum.to_le_bytes());
    let db = Database::builder().create_with_backend(disk.clone()).unwrap();
    let write = db.begin_write().unwrap();
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(table);
    write.open_table(definition).unwrap().insert(key, record.as_slice()).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
}

fn put_operation(disk: &Disk, op: &str, reply: Vec<u8>, at: Timestamp) {
    let event = Event::OperationDone { op: OpId::Named(op.to_owned()), digest: 7, reply, at };
    let payload = encode_record(&Stamped { seq: Seq(1), at: Timestamp(0), event }).unwrap();
    put(disk, Table::Operations.name(), &[b"n", op.as_bytes()].concat(), &payload);
}

#[test]
fn a_repeat_of_a_send_from_before_finds_its_message() {
    let whole = open(&Disk::holding(old(1)));
    let (message, _) = &whole.messages[&MessageId(76)];
    let (sent, later) = (message.created_at, Timestamp(message.created_at.0 + 9));
    let disk = Disk::holding(old(1));
    put_operation(&disk, "first", old_reply(message, sent), sent);
    // It came upon the first one's key, and is answered by that again.
    put_operation(&disk, "keyed", old_reply(message, sent), later);
    put_operation(&disk, "resolved", old_reply(message, later), later);
    let gone = Message { id: MessageId(3), ..message.clone() };
    put_operation(&disk, "of-a-message-that-is-gone", old_reply(&gone, sent), sent);
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        let (found, _) = store.message(message.id).unwrap().unwrap();
        let first = OpId::Named("first".to_owned());
        assert_eq!(found, Message { op: Some(first.clone()), ..message.clone() });
        assert_eq!(loaded.pool.sent_by(&first), Some(message.id));
        let kept = |op: &str| loaded.pool.operation(&OpId::Named(op.to_owned())).is_some();
        assert_eq!(
            ["first", "keyed", "resolved", "of-a-message-that-is-gone"].map(kept),
            [false, false, true, true]
        );
        store.close().unwrap();
    }
}

/// What this schema wrote, byte for byte, and the same as JSON.
fn written(version: u32, name: &str) -> &'static str {
    let rows = match version {
        2 => include_str!("../data/v2-rows.txt"),
        3 => include_str!("../data/v3-rows.txt"),
        _ => include_str!("../data/v4-rows.txt"),
    };
    rows.lines().filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name).unwrap().1
}

fn bytes(version: u32, name: &str) -> Vec<u8> {
    let hex = written(version, name);
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// `SessionCreated` is the third event.
fn put_session(disk: &Disk, version: u32, name: &str, id: u64) {
    let table = format!("sessions-{}", version - 1);
    put(disk, &table, &id.to_be_bytes(), &[vec![1, 0, 2], bytes(version, name)].concat());
}

#[test]
fn a_session_is_carried_over_whole() {
    for version in 2..SCHEMA {
        let disk = Disk::holding(old(version));
        put_session(&disk, version, "session.full", 1);
        put_session(&disk, version, "session.least", 0);
        let (_, loaded) = Store::with_backend(disk).unwrap();
        assert_eq!(loaded.quarantined, []);
        for (id, name) in [(1, "session.full.json"), (0, "session.least.json")] {
            let mut told: Session = serde_json::from_str(written(version, name)).unwrap();
            // What came later is not there, and what came before is.
            assert_eq!(told.policy != Policy::default(), version > 2 && id == 1);
            assert_eq!(told.conversation.is_some(), version > 2 && id == 1);
            assert_eq!(!told.policy.reap.is_empty(), version > 3 && id == 1);
            assert_eq!(told.lock.is_some(), version > 3 && id == 1);
            let found = loaded.pool.session(SessionId(id)).unwrap();
            // Its messages count.
            (told.total_requests, told.last_activity_at) = (found.total_requests, found.last_activity_at);
            assert_eq!(*found, told);
        }
    }
}

/// Answers without a session, a refusal, and one that could never be read.
fn kept(version: u32) -> Vec<Vec<u8>> {
    let names: &[&str] = match version {
        2 => &["message.full", "sent.full", "purged.full", "done"],
        3 => &["message.full", "sent.full", "purged.full", "pruned.full", "done"],
        _ => &[
            "message.full",
            "sent.full",
            "purged.full",
            "pruned.full",
            "locked.full",
            "explained.full",
            "done",
        ],
    };
    let refusal: Reply = Err(Refusal::new(ErrorCode::Conflict, "why"));
    let told = names.iter().map(|name| bytes(version, &format!("reply.{name}")));
    told.chain([encode_record(&refusal).unwrap(), vec![9; 40]]).collect()
}

fn put_kept(disk: &Disk, kept: &[Vec<u8>]) {
    for (n, reply) in kept.iter().enumerate() {
        put_operation(disk, &format!("kept-{n}"), reply.clone(), Timestamp(7));
    }
}

fn operation<'a>(pool: &'a Pool, op: &str) -> &'a Operation {
    pool.operation(&OpId::Named(op.to_owned())).unwrap()
}

fn assert_kept(pool: &Pool, kept: &[Vec<u8>]) {
    for (n, reply) in kept.iter().enumerate() {
        let state = OperationState::Done(reply.clone());
        assert_eq!(*operation(pool, &format!("kept-{n}")), Operation { digest: 7, at: Timestamp(7), state });
        let read = decode_record::<Reply>(reply);
        assert_eq!(read.is_ok(), reply[0] != 9, "all that could be read still can: {read:?}");
    }
}

#[test]
fn a_repeat_is_answered_with_the_session_where_that_was_shown() {
    let kept = kept(2);
    for version in 1..3 {
        let disk = Disk::holding(old(version));
        put_operation(&disk, "full", bytes(2, "reply.session.full"), Timestamp(5));
        put_operation(&disk, "least", bytes(2, "reply.session.least"), Timestamp(6));
        put_kept(&disk, &kept);
        let (_, loaded) = Store::with_backend(disk).unwrap();
        assert_eq!(loaded.quarantined, []);
        let shown =
            |id, at| Operation { digest: 7, at: Timestamp(at), state: OperationState::Begun(SessionId(id)) };
        assert_eq!(*operation(&loaded.pool, "full"), shown(1, 5));
        assert_eq!(*operation(&loaded.pool, "least"), shown(0, 6));
        assert_kept(&loaded.pool, &kept);
    }
}

/// An answer that the third schema or a later one remembered, as it is told now.
fn told_now(version: u32, name: &str) -> Reply {
    let mut told: Value = serde_json::from_str(written(version, &format!("{name}.json"))).unwrap();
    let view = if told["Ok"].get("session").is_some() {
        &mut told["Ok"]["session"]
    } else {
        &mut told["Ok"]["sessions"][0]
    };
    if let Some([token, purpose]) = view["lock"].as_array().map(Vec::as_slice) {
        view["lock"] = json!({"token": token, "purpose": purpose, "waiting": 0});
    }
    // Nothing was known of its agent.
    view["activity"] = json!({"state": "unknown", "source": "nothing", "since": 0});
    view["notes"] = json!({"resumes": 0});
    view["confirm"] = json!("");
    serde_json::from_value(told).unwrap()
}

#[test]
fn a_repeat_gets_the_same_answer_with_sessions_in_it() {
    for version in 3..SCHEMA {
        let kept = kept(version);
        let disk = Disk::holding(old(version));
        let names = ["reply.session.full", "reply.session.least", "reply.sessions.full"];
        names.iter().for_each(|name| put_operation(&disk, name, bytes(version, name), Timestamp(5)));
        put_kept(&disk, &kept);
        let (_, loaded) = Store::with_backend(disk).unwrap();
        assert_eq!(loaded.quarantined, []);
        for name in names {
            let Operation { digest, at, state } = operation(&loaded.pool, name);
            assert_eq!((*digest, *at), (7, Timestamp(5)));
            let OperationState::Done(reply) = state else { panic!("{name}: {state:?}") };
            assert_eq!(decode_record::<Reply>(reply).unwrap(), told_now(version, name));
        }
        assert_kept(&loaded.pool, &kept);
    }
}

#[test]
fn a_damaged_session_is_put_aside_and_keeps_nobody_up() {
    for version in 2..SCHEMA {
        let whole = open(&Disk::holding(old(version)));
        let disk = Disk::holding(old(version));
        let session = whole.messages.values().next().unwrap().0.session;
        let table = format!("sessions-{}", version - 1);
        put(&disk, &table, &session.0.to_be_bytes(), b"rot");
        let (_, loaded) = Store::with_backend(disk.clone()).unwrap();
        let mut aside = loaded.quarantined.iter();
        assert!(aside.any(|q| q.table == table && q.key == session.0.to_be_bytes()), "{aside:?}");
        assert!(loaded.pool.session(session).is_none());
        assert_eq!(loaded.pool.sessions().count() + 1, whole.pool.sessions().count());
        let (_, again) = Store::with_backend(disk).unwrap();
        assert_eq!(again.quarantined, loaded.quarantined, "it is told as long as it is there");
    }
}

/// Files that earlier schemas exported, with an operation more.
#[test]
fn an_old_export_is_imported() {
    for version in 2..SCHEMA {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.redb");
        let lines = fs::read(data(&format!("v{version}.export.jsonl"))).unwrap();
        import(&path, &mut lines.as_slice()).unwrap();
        let (schema, checked) = check_file(&path).unwrap();
        assert_eq!((schema, &checked.problems[..], &checked.quarantined[..]), (SCHEMA, &[][..], &[][..]));
        let (store, loaded) = Store::open(&path, |_| {}).unwrap();
        let mut found = Expected::found(&store, loaded);
        // Lines say all that is needed for the journal to go on.
        assert!(found.journal.iter().map(|event| event.seq.0).eq(1..=found.pool.seq().0));
        if version < 3 {
            found.journal.clear();
        }
        let disk = Disk::holding(old(version));
        put_operation(&disk, "shown", bytes(version, "reply.session.full"), Timestamp(9));
        assert_eq!(found, open(&disk));
    }
}
