//! From the first schema: nothing is lost, whatever happens meanwhile, and the old file is kept.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use protocol::frame::encode_record;
use protocol::{Event, Message, MessageId, MessageState, OpId, Seq, Stamped, Timestamp, Token};
use redb::{Database, TableDefinition};
use store::{Store, StoreError, Table};

use crate::backend::{Disk, Fault};
use crate::crash::open;
use crate::files::{crc32, data};
use crate::rows::rows;
use crate::world::{Expected, Rng, World};

fn old() -> Vec<u8> {
    fs::read(data("v1.redb")).unwrap()
}

#[test]
fn the_file_is_kept_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (path, kept) = (dir.path().join("pool.redb"), dir.path().join("pool.redb.v1"));
    fs::write(&path, old()).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::write(&kept, "half of a copy, from elsewhere").unwrap();
    for _ in 0..2 {
        Store::open(&path, |_| {}).unwrap().0.close().unwrap();
        assert!(fs::read(&kept).unwrap() == old());
        assert_eq!(fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
    let (store, loaded) = Store::open(&kept, |_| {}).unwrap();
    assert_eq!(Expected::found(&store, loaded), open(&Disk::holding(old())), "and it is still good");
}

#[test]
fn nothing_is_changed_where_the_file_cannot_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    fs::write(&path, old()).unwrap();
    // A directory that has the copy's name.
    fs::create_dir(dir.path().join("pool.redb.v1")).unwrap();
    assert!(Store::open(&path, |_| {}).is_err());
    assert!(fs::read(&path).unwrap() == old());
}

#[test]
fn d6_a_power_cut_at_any_write_of_a_migration_loses_nothing() {
    let disk = Disk::holding(old());
    let whole = open(&disk);
    assert!(whole.messages.len() > 10 && whole.journal.is_empty());
    let mut rng = Rng(1);
    let mut images = 0;
    for point in 0..=disk.writes() {
        let random = [disk.image(point, &mut rng), disk.image(point, &mut rng)];
        for image in disk.single_images(point).into_iter().chain(random) {
            let survivor = Disk::holding(image);
            assert_eq!(open(&survivor), whole, "cut at {point}");
            assert_eq!(open(&survivor), whole, "cut at {point}, and opened again");
            let tables = rows(&survivor);
            assert!(!tables.contains_key("journal-1") && tables.len() == 9, "cut at {point}: {tables:?}");
            images += 1;
        }
    }
    assert!(images > 100, "{images}");
}

#[test]
fn d5_a_disk_that_fails_during_a_migration_loses_nothing() {
    let disk = Disk::holding(old());
    let whole = open(&disk);
    for nth in 1..=disk.done() {
        let disk = Disk::failing(old(), Fault { nth, persistent: false, kind: ErrorKind::StorageFull });
        // What it reads in vain at its end does not matter.
        let opened = Store::with_backend(disk.clone());
        if let Err(error) = &opened {
            assert!(matches!(error, StoreError::Io(_) | StoreError::Storage(_)), "{nth}: {error:?}");
        }
        drop(opened);
        assert_eq!(open(&Disk::holding(disk.bytes())), whole, "operation {nth}");
    }
}

#[test]
fn the_journal_begins_anew_and_goes_on() {
    let disk = Disk::holding(old());
    let (mut store, loaded) = Store::with_backend(disk.clone()).unwrap();
    assert_eq!(store.oldest_seq().unwrap(), None);
    let mut world = World::new(5);
    world.now = Expected::found(&store, loaded);
    let before = world.now.pool.seq();
    let batch = world.batch(30);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    assert_eq!(store.oldest_seq().unwrap(), Some(Seq(before.0 + 1)));
    assert_eq!(store.events_since(Seq(0), usize::MAX).unwrap(), world.now.journal);
    drop(store);
    assert_eq!(open(&disk), world.now);
}

#[test]
fn states_are_carried_over_with_a_step() {
    let (store, _) = Store::with_backend(Disk::holding(old())).unwrap();
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

fn put_operation(disk: &Disk, op: &str, reply: Vec<u8>, at: Timestamp) {
    let key = [b"n", op.as_bytes()].concat();
    let event = Event::OperationDone { op: OpId::Named(op.to_owned()), digest: 7, reply, at };
    let mut record = vec![1];
    record.extend(encode_record(&Stamped { seq: Seq(1), at: Timestamp(0), event }).unwrap());
    let sum = crc32(&[Table::Operations.name().as_bytes(), &key, &record].concat());
    record.extend_from_slice(&sum.to_le_bytes());
    let db = Database::builder().create_with_backend(disk.clone()).unwrap();
    let write = db.begin_write().unwrap();
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(Table::Operations.name());
    write.open_table(definition).unwrap().insert(key.as_slice(), record.as_slice()).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
}

#[test]
fn a_repeat_of_a_send_from_before_finds_its_message() {
    let whole = open(&Disk::holding(old()));
    let (message, _) = &whole.messages[&MessageId(76)];
    let (sent, later) = (message.created_at, Timestamp(message.created_at.0 + 9));
    let disk = Disk::holding(old());
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
