//! Export, import, backup, check and compaction.

use std::fs;
use std::path::Path;

use protocol::{AgentEvent, Event, MessageState, Timestamp};
use redb::{Database, TableDefinition};
use store::maintenance::{backup, check, check_file, export, import};
use store::{Loaded, SCHEMA, Store, StoreError, Table};
use tempfile::TempDir;

use crate::history::{Expected, History};

fn open(path: &Path) -> (Store, Loaded) {
    Store::open(path, |_| {}).unwrap()
}

/// Returns a database with rows in every table and a trimmed journal.
fn filled(seed: u64) -> (TempDir, Store, History) {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = open(&dir.path().join("pool.redb"));
    let mut history = History::new(seed);
    for _ in 0..40 {
        history.steps(12);
        history.commit(&mut store).unwrap();
    }
    store.trim_journal(history.now.journal.len() as u64 / 2, Timestamp(0)).unwrap();
    let oldest = store.oldest_seq().unwrap().unwrap();
    history.now.journal.retain(|event| event.seq >= oldest);
    (dir, store, history)
}

fn exported(store: &Store) -> Vec<u8> {
    let mut lines = Vec::new();
    export(store, &mut lines).unwrap();
    lines
}

fn put(path: &Path, table: Table, key: &[u8], record: &[u8]) {
    let db = Database::open(path).unwrap();
    let write = db.begin_write().unwrap();
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(table.name());
    write.open_table(definition).unwrap().insert(key, record).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
}

#[test]
fn an_import_of_an_export_is_the_same_database() {
    for seed in 0..8 {
        let (dir, store, history) = filled(seed);
        let lines = exported(&store);
        assert!(
            !String::from_utf8_lossy(&lines).contains("\"record\""),
            "every row can be expressed in JSON"
        );
        let path = dir.path().join("import.redb");
        let count = import(&path, &mut lines.as_slice()).unwrap();
        assert_eq!(count + 2, lines.iter().filter(|byte| **byte == b'\n').count() as u64);
        let (again, loaded) = open(&path);
        assert_eq!(exported(&again), lines);
        assert_eq!(Expected::found(&again, loaded), history.now);
    }
}

#[test]
fn an_export_has_damaged_records_too() {
    let (dir, store, history) = filled(3);
    store.close().unwrap();
    let path = dir.path().join("pool.redb");
    let (some, other) = {
        let mut ids = history.now.messages.keys();
        (ids.next().unwrap().0.to_be_bytes(), ids.next().unwrap().0.to_be_bytes())
    };
    put(&path, Table::Quarantine, b"sessions-1\0k", b"of old");
    let (store, _) = open(&path);
    // Damage since that open.
    store.close().unwrap();
    put(&path, Table::Messages, &some, b"rot");
    put(&path, Table::MessageStates, &other, b"rot as well");
    put(&path, Table::MessageStates, &9999_u64.to_be_bytes(), b"whose?");
    // The open quarantines it.
    let reader = open(&path).0;
    let lines = exported(&reader);
    let copy = dir.path().join("import.redb");
    import(&copy, &mut lines.as_slice()).unwrap();
    let again = open(&copy).0;
    assert_eq!(exported(&again), lines);
    let found = again.quarantined().unwrap();
    assert_eq!(found, reader.quarantined().unwrap());
    assert!(found >= 4, "{found}");
}

#[test]
fn an_incomplete_export_is_refused_and_leaves_nothing() {
    let (dir, store, _) = filled(1);
    let lines = exported(&store);
    let path = dir.path().join("import.redb");
    let refused = |lines: &[u8]| {
        let imported = import(&path, &mut &lines[..]);
        assert!(matches!(imported, Err(StoreError::Export { .. })), "{imported:?}");
        let left = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
        assert_eq!(left.collect::<Vec<_>>(), ["pool.redb"]);
    };
    let ends: Vec<usize> = (0..lines.len()).filter(|at| lines[*at] == b'\n').collect();
    for end in [0, 10, ends[0] + 1, ends[5] + 1, ends[5] + 20, ends[ends.len() - 2] + 1, lines.len() - 1] {
        refused(&lines[..end]);
    }
    refused(&[lines.as_slice(), b"more\n"].concat());
    refused(&[&lines[..=ends[4]], &lines[ends[5] + 1..]].concat());
    refused(&[&lines[..=ends[4]], &lines[ends[3] + 1..]].concat());
    let text = String::from_utf8(lines.clone()).unwrap();
    refused(text.replacen("\"version\":1", "\"version\":2", 1).as_bytes());
    refused(text.replacen(&format!("\"schema\":{SCHEMA}"), "\"schema\":9", 1).as_bytes());
    refused(text.replacen("\"at\":17", "\"at\":18", 1).as_bytes());
    refused(text.replacen("\"table\":\"sessions\"", "\"table\":\"session\"", 1).as_bytes());
    assert!(matches!(import(&dir.path().join("pool.redb"), &mut &*lines), Err(StoreError::Exists(_))));
}

#[test]
fn a_database_in_place_of_an_export_is_refused_with_what_to_do() {
    let (dir, store, _) = filled(1);
    store.close().unwrap();
    let database = fs::read(dir.path().join("pool.redb")).unwrap();
    let refused = import(&dir.path().join("import.redb"), &mut &*database).unwrap_err();
    assert!(refused.to_string().contains("a backup is put in the place of `pool.redb`"), "{refused}");
}

#[test]
fn a_writer_that_fails_does_not_harm_the_database() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (dir, mut store, mut history) = filled(1);
    assert!(matches!(export(&store, &mut Full), Err(StoreError::Stream(_))));
    assert!(backup(&store, &dir.path().join("no/such/dir.redb")).is_err());
    history.steps(3);
    history.commit(&mut store).unwrap();
}

#[test]
fn a_backup_is_one_snapshot() {
    let (dir, mut store, mut history) = filled(5);
    let path = dir.path().join("backup.redb");
    let (reader, at) = (store.reader(), path.clone());
    backup(&reader, &at).unwrap();
    let then = history.now.clone();
    history.steps(9);
    history.commit(&mut store).unwrap();
    assert!(matches!(backup(&reader, &path), Err(StoreError::Exists(_))));
    let (again, loaded) = open(&path);
    assert_eq!(Expected::found(&again, loaded), then);
    again.close().unwrap();
    assert_eq!(check_file(&path).unwrap().1.problems, [""; 0]);
}

#[test]
fn compacting_keeps_everything_and_gives_space_back() {
    let (dir, mut store, mut history) = filled(7);
    let sent: Vec<_> = (0..60)
        .map(|_| {
            let id = history.send();
            history.set_body(id, vec![5; 100_000]);
            id
        })
        .collect();
    history.commit(&mut store).unwrap();
    sent.into_iter().for_each(|id| history.forget(id));
    history.commit(&mut store).unwrap();
    let reader = store.reader();
    let (before, after) = store.compact().unwrap();
    assert!(after < before / 2, "{before} {after}");
    assert_eq!(after, fs::metadata(dir.path().join("pool.redb")).unwrap().len());
    history.steps(9);
    history.commit(&mut store).unwrap();
    assert_eq!(reader.oldest_seq().unwrap(), store.oldest_seq().unwrap(), "readers go on");
    drop((store, reader));
    let (store, loaded) = open(&dir.path().join("pool.redb"));
    assert_eq!(Expected::found(&store, loaded), history.now);
}

#[test]
fn compacting_is_refused_during_a_read() {
    let (_dir, mut store, _) = filled(2);
    let reader = store.reader();
    let mut refused = false;
    reader
        .each_message(protocol::MessageId(0), |_, _| {
            refused |= matches!(store.compact(), Err(StoreError::Busy));
            false
        })
        .unwrap();
    assert!(refused);
    store.compact().unwrap();
}

#[test]
fn a_sound_database_has_no_problems() {
    for seed in 0..4 {
        let (dir, store, _) = filled(seed);
        let checked = check(&store).unwrap();
        assert!(checked.records > 20 && checked.bytes > 2000, "{checked:?}");
        assert!(checked.problems.is_empty() && checked.quarantined.is_empty(), "{checked:?}");
        assert!(matches!(check_file(&dir.path().join("pool.redb")), Err(StoreError::Locked)));
        drop(store);
        let path = dir.path().join("pool.redb");
        let before = fs::read(&path).unwrap();
        assert_eq!(check_file(&path).unwrap(), (SCHEMA, checked));
        assert!(fs::read(&path).unwrap() == before, "a check changes nothing");
    }
}

#[test]
fn a_check_finds_all_damage() {
    let (dir, mut store, mut history) = filled(4);
    let id = history.send();
    history.change_state(id, MessageState::Claimed);
    history.commit(&mut store).unwrap();
    let session = history.now.messages[&id].0.session;
    store.close().unwrap();
    let path = dir.path().join("pool.redb");
    put(&path, Table::Sessions, &session.0.to_be_bytes(), b"rot");
    put(&path, Table::MessageStates, &id.0.to_be_bytes(), b"rot");
    put(&path, Table::MessageStates, &9999_u64.to_be_bytes(), b"whose?");
    for table in [Table::Activities, Table::Notes, Table::Thoughts] {
        put(&path, table, &9_u64.to_be_bytes(), b"rot");
    }
    let (schema, checked) = check_file(&path).unwrap();
    assert_eq!(schema, SCHEMA);
    for part in
        ["sessions ", "message-states ", "message-states 9999", "activities 9", "notes 9", "thoughts 9"]
    {
        assert!(checked.problems.iter().any(|p| p.starts_with(part)), "{part}: {:?}", checked.problems);
    }
    // An open quarantines them; checks report them from then on.
    drop(open(&path));
    let (_, checked) = check_file(&path).unwrap();
    let missing = format!("{} {id}: its session {session} is missing", Table::Messages.name());
    assert!(checked.quarantined.contains(&missing), "{checked:?}");
    assert_eq!(checked.problems, [""; 0]);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[100..middle].fill(7);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(check_file(&path), Err(StoreError::Damaged(_))));
}

#[test]
fn a_check_compares_the_size_of_a_message_with_its_body() {
    let (_dir, mut store, mut history) = filled(4);
    let id = history.send();
    let size = history.now.messages[&id].0.size;
    history.set_body(id, vec![b'x'; usize::try_from(size).unwrap() + 1]);
    history.commit(&mut store).unwrap();
    let problems = check(&store).unwrap().problems;
    let expected = format!(": its body has {} bytes, not {size}", size + 1);
    assert!(problems.len() == 1 && problems[0].ends_with(&expected), "{problems:?}");
}

#[test]
fn a_line_of_an_export_is_readable() {
    let (_dir, mut store, mut history) = filled(6);
    let id = history.send();
    history.set_body(id, b"say hello".to_vec());
    history.change_state(id, MessageState::Done);
    let (session, activity) = (history.create(), history.activity(6));
    let known = Event::Agent(AgentEvent::ActivityChanged { session, activity, turned: false });
    history.emit(known.clone());
    history.commit(&mut store).unwrap();
    let lines = String::from_utf8(exported(&store)).unwrap();
    let line = lines.lines().find(|line| line.contains("say hello")).unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["table"], "messages");
    assert_eq!(line["key"], id.0);
    assert_eq!(line["status"]["state"], "done");
    assert_eq!(line["steps"][0]["state"], "done");
    let event: Event = serde_json::from_value(line["event"].clone()).unwrap();
    assert!(matches!(event, Event::MessageQueued(message) if message.id == id));
    let its = |line: &serde_json::Value| line["table"] == "activities" && line["key"] == session.0;
    let mut lines = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let told: Event = serde_json::from_value(lines.find(its).unwrap()["event"].clone()).unwrap();
    assert_eq!(told, known);
}
