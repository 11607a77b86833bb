//! A worked migration: from a made-up version 0, which kept retired tags in a table `retired-0`, with nothing
//! but the session in the record.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use pool::Pool;
use protocol::frame::{decode_record, encode_record};
use protocol::{Event, Seq, SessionId, Stamped, Tag, Timestamp};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle, WriteTransaction};
use tempfile::TempDir;

use backend::{Disk, Fault};
use rng::Rng;

use crate::maintenance::{check_file, export, import};
use crate::quarantine;
use crate::record::{seal, seal_event, unseal};
use crate::tables::{Definition, SCHEMA_KEY, Table};
use crate::transaction::Tables;
use crate::{Loaded, RecordError, SCHEMA, Store, StoreError, schema};

#[expect(dead_code, reason = "the integration tests use the rest")]
#[path = "../../tests/store/backend.rs"]
mod backend;
#[expect(dead_code, reason = "the integration tests use the rest")]
#[path = "../../tests/store/rng.rs"]
mod rng;

const RETIRED: Definition = TableDefinition::new("retired-0");

pub(super) fn from_v0(transaction: &WriteTransaction, tables: &mut Tables<'_>) -> Result<(), StoreError> {
    for row in transaction.open_table(RETIRED)?.range::<&[u8]>(..)? {
        let (key, record) = row?;
        let (key, record) = (key.value(), record.value());
        match tag_retired(key, record) {
            Ok(event) => tables.put(Table::Retired, key, &seal_event(Table::Retired, key, &event)?)?,
            Err(why) => quarantine::put(tables, RETIRED.name(), key, (record, &why.to_string()))?,
        }
    }
    transaction.delete_table(RETIRED)?;
    Ok(())
}

/// Decodes a row of version 0.
fn tag_retired(key: &[u8], record: &[u8]) -> Result<Stamped, RecordError> {
    let session = decode_record(unseal(RETIRED.name(), key, record)?).map_err(RecordError::Decode)?;
    let tag = Tag(key.try_into().map_err(|_| RecordError::Short)?);
    Ok(Stamped { seq: Seq(0), at: Timestamp(0), event: Event::TagRetired { tag, session } })
}

fn tag(n: u8) -> Tag {
    Tag([n; 16])
}

fn stamped(seq: u64, event: Event) -> Stamped {
    Stamped { seq: Seq(seq), at: Timestamp(seq), event }
}

fn retire(store: &mut Store, pool: &mut Pool, tags: impl Iterator<Item = u8>) {
    let events = tags.map(|n| Event::TagRetired { tag: tag(n), session: SessionId(n.into()) });
    let seen = Event::WatcherLost { reason: "gone".to_owned() };
    let events = events.chain([seen]).map(|event| stamped(pool.seq().0 + 1, event)).collect::<Vec<_>>();
    events.iter().for_each(|event| pool.apply(event));
    store.commit(pool, &events, &[]).unwrap();
}

/// A closed database of version 0.
fn v0() -> Vec<u8> {
    let disk = Disk::default();
    let mut store = Store::with_backend(disk.clone()).unwrap().0;
    retire(&mut store, &mut Pool::default(), 1..=20);
    store.close().unwrap();
    let db = Database::builder().create_with_backend(disk.clone()).unwrap();
    let write = db.begin_write().unwrap();
    write.delete_table(Table::Retired.definition()).unwrap();
    for n in 1..=20 {
        let (key, session) = (tag(n).0, encode_record(&SessionId(n.into())).unwrap());
        let record = seal(RETIRED.name(), &key, &[&session]);
        write.open_table(RETIRED).unwrap().insert(key.as_slice(), record.as_slice()).unwrap();
    }
    let mut meta = write.open_table(Table::Meta.definition()).unwrap();
    meta.insert(SCHEMA_KEY, schema::record(0).as_slice()).unwrap();
    drop(meta);
    write.commit().unwrap();
    db.close().unwrap();
    disk.bytes()
}

/// Writes a database of version 0, as `pool.redb`.
fn v0_file() -> (TempDir, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let bytes = v0();
    fs::write(dir.path().join("pool.redb"), &bytes).unwrap();
    (dir, bytes)
}

/// Everything that a store holds in these tests.
fn content(store: &Store, loaded: Loaded) -> (Pool, Vec<Stamped>) {
    assert_eq!(loaded.quarantined, []);
    (loaded.pool, store.events_since(Seq(0), usize::MAX).unwrap())
}

fn open(bytes: Vec<u8>) -> (Pool, Vec<Stamped>) {
    let (store, loaded) = Store::with_backend(Disk::holding(bytes)).expect("it opens");
    content(&store, loaded)
}

fn assert_upgraded((pool, events): &(Pool, Vec<Stamped>)) {
    assert!((1..=20).all(|n| pool.retired(tag(n)) == Some(SessionId(n.into()))));
    assert_eq!(pool.retired_tags().count(), 20);
    assert!(matches!(events.last().unwrap().event, Event::WatcherLost { .. }));
}

#[test]
fn an_older_file_is_upgraded_and_a_copy_of_it_kept() {
    let (dir, before) = v0_file();
    let (path, copy) = (dir.path().join("pool.redb"), dir.path().join("pool.redb.v0"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::write(&copy, "half of a copy, made by something else").unwrap();
    for round in 0..2 {
        let (mut store, loaded) = Store::open(&path, |_| {}).unwrap();
        let mut found = content(&store, loaded);
        assert_eq!(found.0.retired_tags().count(), 20 + round);
        retire(&mut store, &mut found.0, 21..=21);
        store.close().unwrap();
        assert!(fs::read(&copy).unwrap() == before);
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
    assert_eq!(check_file(&path).unwrap().0, SCHEMA);
    let (store, loaded) = Store::open(&copy, |_| {}).unwrap();
    assert_upgraded(&content(&store, loaded));
}

#[test]
fn nothing_is_changed_if_no_copy_can_be_made() {
    let (dir, before) = v0_file();
    // A directory has the name of the copy.
    fs::create_dir(dir.path().join("pool.redb.v0")).unwrap();
    assert!(Store::open(&dir.path().join("pool.redb"), |_| {}).is_err());
    assert!(fs::read(dir.path().join("pool.redb")).unwrap() == before);
}

/// Returns the version that a database is stamped with.
fn version_of(bytes: Vec<u8>) -> u32 {
    let db = Database::builder().create_with_backend(Disk::holding(bytes)).unwrap();
    schema::version(&db.begin_read().unwrap()).unwrap().unwrap()
}

#[test]
fn d6_a_power_cut_at_any_write_of_a_migration_loses_nothing() {
    let disk = Disk::holding(v0());
    let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
    let upgraded = content(&store, loaded);
    assert_upgraded(&upgraded);
    drop(store);
    let (mut rng, mut images, mut versions) = (Rng(1), 0, BTreeSet::new());
    for point in 0..=disk.writes() {
        let random = [disk.image(point, &mut rng), disk.image(point, &mut rng)];
        for image in disk.single_images(point).into_iter().chain(random) {
            versions.insert(version_of(image.clone()));
            assert_eq!(open(image), upgraded, "cut at {point}");
            images += 1;
        }
    }
    assert!(images > 50, "{images}");
    assert_eq!(versions, BTreeSet::from([0, SCHEMA]), "never anything in between");
}

#[test]
fn d5_a_disk_that_fails_during_a_migration_loses_nothing() {
    let before = v0();
    let disk = Disk::holding(before.clone());
    drop(Store::with_backend(disk.clone()).unwrap());
    let upgraded = open(disk.bytes());
    assert_upgraded(&upgraded);
    for nth in 1..=disk.done() {
        let fault = Fault { nth, persistent: false, kind: ErrorKind::StorageFull };
        let failing = Disk::failing(before.clone(), fault);
        // A read may fail after the last write without harm.
        if let Err(error) = Store::with_backend(failing.clone()) {
            assert!(matches!(error, StoreError::Io(_) | StoreError::Storage(_)), "{nth}: {error:?}");
        }
        assert_eq!(open(failing.bytes()), upgraded, "operation {nth}");
    }
}

#[test]
fn a_damaged_record_of_an_older_file_is_quarantined() {
    let disk = Disk::holding(v0());
    let db = Database::builder().create_with_backend(disk.clone()).unwrap();
    let write = db.begin_write().unwrap();
    write.open_table(RETIRED).unwrap().insert(tag(7).0.as_slice(), &b"rot"[..]).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let (store, loaded) = Store::with_backend(disk.clone()).unwrap();
        let [quarantined] = &loaded.quarantined[..] else { panic!("{:?}", loaded.quarantined) };
        assert_eq!((&quarantined.table[..], &quarantined.bytes[..]), ("retired-0", &b"rot"[..]));
        assert_eq!(loaded.pool.retired_tags().count(), 19);
        store.close().unwrap();
    }
}

#[test]
fn a_check_of_an_older_file_does_not_upgrade_it() {
    let (dir, before) = v0_file();
    let path = dir.path().join("pool.redb");
    let (version, checked) = check_file(&path).unwrap();
    assert_eq!((version, checked.problems), (0, vec![]));
    assert!(fs::read(&path).unwrap() == before);
}

/// Rewrites an export as one of another schema.
fn with_schema(export: &str, schema: u32) -> String {
    let (current, wanted) = (format!("\"schema\":{SCHEMA}"), format!("\"schema\":{schema}"));
    let (stamp, restamped) = (format!("\"number\":{SCHEMA}"), format!("\"number\":{schema}"));
    let (rows, _) = export.split_at(export.find("{\"end\":").unwrap());
    let rows: String = rows
        .lines()
        .map(|line| match line {
            line if line.contains("\"key\":\"schema\"") => line.replace(&stamp, &restamped) + "\n",
            line => line.replace(&current, &wanted) + "\n",
        })
        .collect();
    let (lines, sum) = (rows.lines().count() - 1, crc32fast::hash(rows.as_bytes()));
    format!("{rows}{{\"end\":{{\"lines\":{lines},\"crc32\":\"{sum:08x}\"}}}}\n")
}

/// Of an older version, and of the last development builds before 0.1.
#[test]
fn an_export_of_an_older_schema_is_imported() {
    let (store, _) = Store::with_backend(Disk::holding(v0())).unwrap();
    let mut lines = Vec::new();
    export(&store, &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    for schema in [0, SCHEMA, 5] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.redb");
        import(&path, &mut with_schema(&lines, schema).as_bytes()).unwrap();
        let (store, loaded) = Store::open(&path, |_| {}).unwrap();
        assert_upgraded(&content(&store, loaded));
        store.close().unwrap();
        assert_eq!(check_file(&path).unwrap().0, SCHEMA);
    }
}
