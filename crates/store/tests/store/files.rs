//! The file itself: mode, lock, schema versions.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pool::Pool;
use protocol::policy::{Budget, Policy};
use protocol::{Session, SessionId};
use redb::{Database, TableDefinition};
use store::maintenance::check_file;
use store::{SCHEMA, Store, StoreError, Table};

use crate::crash::created;
use crate::history::{Expected, History};

fn open(path: &Path) -> Result<(Store, store::Loaded), StoreError> {
    Store::open(path, |_| {})
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn d7_the_file_is_private_and_whole_before_it_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    fs::write(dir.path().join(".pool.redb.4711-0.new"), "left by a crash").unwrap();
    let (store, _) = open(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(store.bytes(), fs::metadata(&path).unwrap().len());
    store.close().unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn an_open_file_that_is_removed_or_replaced_is_known_to_be_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("pool.redb"), dir.path().join("copy"));
    let (store, _) = open(&path).unwrap();
    assert!(!store.is_removed());
    fs::copy(&path, &copy).unwrap();
    fs::rename(&copy, &path).unwrap();
    assert!(store.is_removed(), "another file has its place");
    fs::remove_file(&path).unwrap();
    assert!(store.is_removed());
}

#[test]
fn an_empty_file_is_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    fs::write(&path, "").unwrap();
    let (_, loaded) = open(&path).unwrap();
    assert_eq!(loaded.pool, pool::Pool::default());
    assert_eq!(mode(&path), 0o600);
}

#[test]
fn a_second_open_is_locked_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let (store, _) = open(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Locked)));
    drop(store);
    assert!(open(&path).is_ok());
}

#[test]
fn a_crashed_file_is_repaired_with_progress() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let mut history = History::new(8);
    let (mut store, _) = open(&path).unwrap();
    history.steps(40);
    history.commit(&mut store).unwrap();
    let copy = dir.path().join("crashed.redb");
    fs::copy(&path, &copy).unwrap();
    let reported = Arc::new(AtomicBool::new(false));
    let progress = Arc::clone(&reported);
    let (again, loaded) = Store::open(&copy, move |_| progress.store(true, Ordering::Relaxed)).unwrap();
    assert!(reported.load(Ordering::Relaxed));
    assert_eq!(Expected::found(&again, loaded), history.now);
}

/// Stamps a database with a schema version, in this table.
fn stamp(db: Database, meta: &str, version: u64) {
    let mut record = vec![1];
    record.extend_from_slice(&version.to_be_bytes());
    let sum = crc32(&[meta.as_bytes(), b"schema", &record].concat());
    record.extend_from_slice(&sum.to_le_bytes());
    let write = db.begin_write().unwrap();
    let definition: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(meta);
    write.open_table(definition).unwrap().insert(b"schema".as_slice(), record.as_slice()).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
}

fn stamp_newer(db: Database) {
    stamp(db, Table::Meta.name(), u64::from(SCHEMA) + 1);
}

pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |bit| u32::from(byte >> bit & 1)));
    !bits.fold(!0, |crc, bit| (crc >> 1) ^ if (crc & 1) ^ bit == 1 { 0xedb8_8320 } else { 0 })
}

#[test]
fn d9_a_newer_schema_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    open(&path).unwrap().0.close().unwrap();
    stamp_newer(Database::open(&path).unwrap());
    let before = fs::read(&path).unwrap();
    let opened = open(&path);
    assert!(
        matches!(opened, Err(StoreError::Newer { found, known: SCHEMA }) if found == SCHEMA + 1),
        "{opened:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A version below the oldest that has a migration, and a file of a development build before 0.1.
#[test]
fn d9_an_unknown_older_schema_is_refused_and_not_touched() {
    for (meta, version) in [(Table::Meta.name(), 0), ("meta-1", 1), ("meta-1", 5)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pool.redb");
        stamp(Database::create(&path).unwrap(), meta, version);
        let before = fs::read(&path).unwrap();
        let error = open(&path).unwrap_err();
        assert!(matches!(error, StoreError::Obsolete(_)), "{error:?}");
        assert!(error.to_string().contains("poolctl export"), "{error}");
        assert!(matches!(check_file(&path), Err(StoreError::Obsolete(_))));
        assert_eq!(fs::read(&path).unwrap(), before);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no copy is made");
    }
}

#[test]
fn a_large_file_is_not_checked_whole_and_a_newer_one_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let (mut store, _) = open(&path).unwrap();
    let mut history = History::new(4);
    history.create();
    for _ in 0..100 {
        let id = history.send();
        history.set_body(id, vec![7; 256 * 1024]);
    }
    history.commit(&mut store).unwrap();
    assert!(store.bytes() > 64 << 20);
    store.close().unwrap();
    let (store, loaded) = open(&path).unwrap();
    assert_eq!(Expected::found(&store, loaded), history.now);
    store.close().unwrap();
    stamp_newer(Database::open(&path).unwrap());
    let before = fs::read(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Newer { .. })));
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn d9_a_newer_schema_is_refused_on_any_storage() {
    let disk = created();
    stamp_newer(Database::builder().create_with_backend(disk.clone()).unwrap());
    let opened = Store::with_backend(disk);
    assert!(matches!(opened, Err(StoreError::Newer { .. })), "{opened:?}");
}

pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// Opens a file of each schema version and compares it with its content when it was written. `BLESS=1`
/// rewrites the file of the current version, which is right only as long as that schema is not released, and
/// the newer file of the system tests.
#[test]
fn d9_files_of_all_versions_load() {
    if env::var_os("BLESS").is_some() {
        let name = |ending: &str| data(&format!("v{SCHEMA}.{ending}"));
        fs::write(name("txt"), summary(&bless(&name("redb")))).unwrap();
        let newer = data("../../../../tests/data/newer.redb");
        drop(fs::remove_file(&newer));
        stamp(Database::create(&newer).unwrap(), Table::Meta.name(), 9999);
        compact(&newer);
    }
    for version in 1..=SCHEMA {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("pool.redb");
        fs::copy(data(&format!("v{version}.redb")), &copy).unwrap();
        for _ in 0..2 {
            let (store, loaded) = open(&copy).unwrap();
            let told = fs::read_to_string(data(&format!("v{version}.txt"))).unwrap();
            assert_eq!(summary(&Expected::found(&store, loaded)), told);
            store.close().unwrap();
        }
    }
}

fn bless(file: &Path) -> Expected {
    drop(fs::remove_file(file));
    let mut history = History::new(2026);
    let (mut store, _) = open(file).unwrap();
    for _ in 0..2 {
        for _ in 0..120 {
            let choice = history.rng.next();
            history.step(choice);
        }
        history.commit(&mut store).unwrap();
    }
    store.close().unwrap();
    compact(file);
    history.now
}

fn compact(file: &Path) {
    let mut db = Database::open(file).unwrap();
    while db.compact().unwrap() {}
    db.close().unwrap();
}

/// Lines about policy, usage, lock and limits of a session.
fn policy(s: &Session) -> impl Iterator<Item = String> {
    let (p, b, spec) = (&s.policy, &s.budget, &s.spec);
    let run = s.incarnation.as_ref().filter(|run| run.resumed);
    let policy = (Policy { reap: Default::default(), ..p.clone() } != Policy::default())
        .then(|| format!("restart {}, at most {:?}, ttl {:?}", p.restart.as_str(), p.max_restarts, p.ttl_ms));
    let budget = (*b != Budget::default())
        .then(|| format!("{} starts, {} failures, exhausted {}", b.starts.len(), b.failures, b.exhausted));
    let limits = (!spec.limits.is_empty())
        .then(|| format!("{}, {:?}, context {:?}", spec.limits, spec.resume_args, spec.context_limit));
    [
        policy,
        budget,
        limits,
        s.conversation.as_ref().map(|c| format!("conversation {}, begun {}", c.id, c.begun)),
        s.account.map(|a| format!("used {} us, killed {:?}", a.user_us, a.oom_kills)),
        (!p.reap.is_empty()).then(|| {
            let rules = p.reap.iter().map(|(rule, action)| format!("{} {}", rule.as_str(), action.as_str()));
            format!("rules: {}", rules.collect::<Vec<_>>().join(", "))
        }),
        s.lock.as_ref().map(|lock| {
            format!("lock {} for {} by {:?}, {} ms", lock.token, lock.purpose, lock.holder, lock.lease_ms)
        }),
        run.map(|run| format!("resumed in {:?}, without {:?}", run.cgroup, run.unenforced)),
    ]
    .into_iter()
    .flatten()
}

/// Lines about its agent.
fn agent(pool: &Pool, session: SessionId) -> impl Iterator<Item = String> {
    let activity = pool.activity(session).map(|a| {
        let ask = a.ask.as_ref().map(|ask| (ask.kind.as_str(), &ask.text, &ask.tool, ask.answerable));
        let (state, source, since) = (a.state.as_str(), a.source.as_str(), a.since.0);
        format!(
            "{state} by {source} since {since}, asks {ask:?}, {:?}, limited {:?}",
            a.detail,
            a.limited_until.map(|at| at.0)
        )
    });
    let notes = pool.notes(session).map(|n| {
        let known = (&n.transcript, n.tokens, &n.skill);
        format!(
            "heard {:?} of {:?}, knows {known:?}, {} resumes",
            n.heard_at.map(|at| at.0),
            n.hooked.map(|tag| tag.to_string()),
            n.resumes
        )
    });
    let thought = pool.thought(session).map(|t| {
        let (state, source, rest) =
            (t.state.as_str(), t.source.as_str(), t.rest_state.map(|rest| rest.as_str()));
        let changed = t.objective_changed_at.map(|at| at.0);
        let place = t.place.as_ref().map(|place| (&place.stream, place.seq));
        let told = (&t.objective, changed, t.commit_candidate, place);
        let tokens = (t.token_count, t.context_limit, t.updated_at.0);
        format!("thinks {:?}, {state} by {source}, rests {rest:?}, {told:?}, {tokens:?}", t.text)
    });
    [activity, notes, thought].into_iter().flatten()
}

/// Returns the content as text, one line per fact, independent of the Rust types.
fn summary(found: &Expected) -> String {
    let pool = &found.pool;
    let (build, boot) = pool.started_by();
    let (epoch, seq, next) = (pool.epoch(), pool.seq(), pool.next_session());
    let mut lines = vec![format!("epoch {epoch}, seq {seq}, next {next}, build {build}, boot {boot}")];
    lines.extend(pool.server().map(|server| server.to_string()));
    for s in pool.sessions() {
        let tag = s.incarnation.as_ref().map(|i| i.tag.to_string()).unwrap_or_default();
        let exit = s.exit.map(|exit| exit.shell_code());
        let (workspace, name) = (s.workspace.as_str(), s.name.as_str());
        lines.push(format!("{} {workspace} {name} {:?} {exit:?} {tag}", s.id, s.lifecycle));
        lines
            .push(format!("  {} requests, {} restarts, labels {:?}", s.total_requests, s.restarts, s.labels));
        lines.extend(policy(s).chain(agent(pool, s.id)).map(|known| format!("  {known}")));
    }
    for (m, body) in found.messages.values() {
        let (sum, status) = (crc32(body), &m.status);
        let (id, session, state, attempts) = (m.id, m.session, status.state, status.attempts);
        lines.push(format!("message {id} of {session}: {state:?}, {attempts} tries, body {sum:08x}"));
        if m.steps.len() > 2 || m.priority != 0 {
            let (kind, steps, result) = (&m.kind, m.steps.len(), status.result.is_some());
            lines.push(format!("  {kind}, priority {}, {steps} steps, result {result}", m.priority));
        }
    }
    lines.extend(pool.breakers().map(|(session, kind, breaker)| {
        format!("breaker of {session} {kind}: {} failures, open {}", breaker.failures, breaker.is_open())
    }));
    let mut operations: Vec<_> = pool.operations().map(|(op, o)| format!("{op:?} {}", o.digest)).collect();
    operations.sort();
    lines.extend(operations);
    lines.extend(found.journal.iter().map(|e| format!("{} {} {}", e.seq, e.at.0, e.event.kind())));
    lines.join("\n") + "\n"
}
