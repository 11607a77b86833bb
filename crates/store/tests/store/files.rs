//! The file itself: mode, lock, versions, old files.

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pool::Pool;
use protocol::life::{Budget, Policy};
use protocol::{Session, SessionId};
use redb::{Database, TableDefinition};
use store::{SCHEMA, Store, StoreError, Table};

use crate::crash::created;
use crate::world::{Batch, Expected, World};

const DEFINITION: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new(Table::Meta.name());

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
fn a_crashed_file_is_repaired_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let mut world = World::new(8);
    let (mut store, _) = open(&path).unwrap();
    let batch = world.batch(40);
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    let copy = dir.path().join("crashed.redb");
    fs::copy(&path, &copy).unwrap();
    let heard = Arc::new(AtomicBool::new(false));
    let hears = Arc::clone(&heard);
    let (again, loaded) = Store::open(&copy, move |_| hears.store(true, Ordering::Relaxed)).unwrap();
    assert!(heard.load(Ordering::Relaxed));
    assert_eq!(Expected::found(&again, loaded), world.now);
}

fn newer(db: Database, version: u64) {
    // The record of the next schema: the same layout, another number.
    let mut record = vec![1];
    record.extend_from_slice(&version.to_be_bytes());
    let sum = crc32(&[Table::Meta.name().as_bytes(), b"schema", &record].concat());
    record.extend_from_slice(&sum.to_le_bytes());
    let write = db.begin_write().unwrap();
    write.open_table(DEFINITION).unwrap().insert(b"schema".as_slice(), record.as_slice()).unwrap();
    write.commit().unwrap();
    db.close().unwrap();
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
    newer(Database::open(&path).unwrap(), u64::from(SCHEMA) + 1);
    let before = fs::read(&path).unwrap();
    let opened = open(&path);
    assert!(
        matches!(opened, Err(StoreError::Newer { found, known: SCHEMA }) if found == SCHEMA + 1),
        "{opened:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    newer(Database::open(&path).unwrap(), 0);
    assert!(matches!(open(&path), Err(StoreError::Damaged(_))));
}

#[test]
fn a_large_file_is_not_checked_whole_and_a_newer_one_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pool.redb");
    let (mut store, _) = open(&path).unwrap();
    let mut world = World::new(4);
    let mut batch = Batch::default();
    world.create(&mut batch);
    for _ in 0..100 {
        let id = world.send(&mut batch);
        world.set_body(id, vec![7; 256 * 1024], &mut batch);
    }
    store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    assert!(store.bytes() > 64 << 20);
    store.close().unwrap();
    let (store, loaded) = open(&path).unwrap();
    assert_eq!(Expected::found(&store, loaded), world.now);
    store.close().unwrap();
    newer(Database::open(&path).unwrap(), u64::from(SCHEMA) + 1);
    let before = fs::read(&path).unwrap();
    assert!(matches!(open(&path), Err(StoreError::Newer { .. })));
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn d9_a_newer_schema_is_refused_on_any_storage() {
    let disk = created();
    newer(Database::builder().create_with_backend(disk.clone()).unwrap(), u64::from(SCHEMA) + 1);
    let opened = Store::with_backend(disk);
    assert!(matches!(opened, Err(StoreError::Newer { .. })), "{opened:?}");
}

pub(crate) fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A file of each version, and what was in it when it was written, but for the journal of the first two,
/// which is not carried over. `BLESS=1` makes the current version's anew, which is right only as long as
/// nothing with this schema was released.
#[test]
fn d9_files_of_all_versions_load() {
    if env::var_os("BLESS").is_some() {
        fs::write(data("v5.txt"), summary(&bless(&data("v5.redb")))).unwrap();
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
    let mut world = World::new(2026);
    let (mut store, _) = open(file).unwrap();
    for _ in 0..2 {
        let mut batch = Batch::default();
        for _ in 0..120 {
            let choice = world.rng.next();
            world.step(choice, &mut batch);
        }
        store.commit(&world.now.pool, &batch.events, &batch.bodies).unwrap();
    }
    store.close().unwrap();
    let mut db = Database::open(file).unwrap();
    while db.compact().unwrap() {}
    db.close().unwrap();
    world.now
}

/// What the first versions knew nothing of.
fn life(s: &Session) -> impl Iterator<Item = String> {
    let (p, b, spec) = (&s.policy, &s.budget, &s.spec);
    let run = s.incarnation.as_ref().filter(|run| run.resumed);
    let policy = (Policy { reap: Default::default(), ..p.clone() } != Policy::default())
        .then(|| format!("restart {}, at most {:?}, ttl {:?}", p.restart.word(), p.max_restarts, p.ttl_ms));
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
            let rules = p.reap.iter().map(|(rule, action)| format!("{} {}", rule.word(), action.word()));
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

/// What is known of its agent.
fn agent(pool: &Pool, session: SessionId) -> impl Iterator<Item = String> {
    let activity = pool.activity(session).map(|a| {
        let ask = a.ask.as_ref().map(|ask| (ask.kind.word(), &ask.text, &ask.tool, ask.answerable));
        let (state, source, since) = (a.state.word(), a.source.word(), a.since.0);
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
        let (state, source, rest) = (t.state.word(), t.source.word(), t.rest_state.map(|rest| rest.word()));
        let changed = t.objective_changed_at.map(|at| at.0);
        let place = t.place.as_ref().map(|place| (&place.stream, place.seq));
        let told = (&t.objective, changed, t.commit_candidate, place);
        let tokens = (t.token_count, t.context_limit, t.updated_at.0);
        format!("thinks {:?}, {state} by {source}, rests {rest:?}, {told:?}, {tokens:?}", t.text)
    });
    [activity, notes, thought].into_iter().flatten()
}

/// One line a fact, in words that outlive the types.
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
        lines.extend(life(s).chain(agent(pool, s.id)).map(|known| format!("  {known}")));
    }
    for (m, body) in found.messages.values() {
        let (sum, status) = (crc32(body), &m.status);
        let (id, session, state, attempts) = (m.id, m.session, status.state, status.attempts);
        lines.push(format!("message {id} of {session}: {state:?}, {attempts} tries, body {sum:08x}"));
        // The first version knew one change of a message, and nothing of what follows.
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
