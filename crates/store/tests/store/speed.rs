//! Speed, beside the floor of the same disk in the same run. Prints times, and asserts nothing about them.
//! `cargo test --release -p store -- --ignored --nocapture speed`

use std::env;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pool::Pool;
use protocol::{
    Event, Message, MessageId, MessageState, MessageStatus, OpId, Seq, SessionId, Stamped, Timestamp,
};
use store::Store;
use store::maintenance::{backup, check, check_file, export, import};
use tempfile::TempDir;

use crate::history::{Batch, History};

const BODY: usize = 256;

/// A pool with 64 sessions, which get messages in turn.
struct Load {
    pool: Pool,
    sessions: Vec<SessionId>,
}

impl Load {
    fn new(store: &mut Store) -> Self {
        let mut history = History::new(1);
        (0..64).for_each(|_| history.step(0));
        history.commit(store).unwrap();
        let sessions = history.now.pool.sessions().map(|s| s.id).collect();
        Self { pool: history.now.pool, sessions }
    }

    fn queue(&mut self, batch: &mut Batch) {
        let seq = Seq(self.pool.seq().0 + 1);
        let id = MessageId(seq.0);
        let session = self.sessions[usize::try_from(id.0).unwrap() % self.sessions.len()];
        let at = Timestamp(1_790_000_000_000 + id.0);
        let op: Vec<u8> = [id.0.to_le_bytes(), id.0.wrapping_mul(0x9e37_79b9).to_le_bytes()].concat();
        let event = Event::MessageQueued(Box::new(Message {
            id,
            session,
            ordinal: id.0,
            kind: "prompt".to_owned(),
            key: None,
            op: Some(OpId::Random(op.try_into().unwrap())),
            origin: "cli".to_owned(),
            cause: None,
            hops: 0,
            priority: 0,
            size: u32::try_from(BODY).unwrap(),
            digest: id.0.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            enter: true,
            max_attempts: 5,
            created_at: at,
            expires_at: None,
            in_doubt: None,
            status: MessageStatus::default(),
            steps: Vec::new(),
            deadline_at: None,
        }));
        self.emit(Stamped { seq, at, event }, batch);
        batch.bodies.push((id, vec![b'x'; BODY]));
    }

    fn change(&mut self, id: MessageId, state: MessageState, batch: &mut Batch) {
        let session = self.sessions[usize::try_from(id.0).unwrap() % self.sessions.len()];
        let (seq, at) = (Seq(self.pool.seq().0 + 1), Timestamp(1_790_000_000_000));
        let status = Box::new(MessageStatus { state, attempts: 1, changed_at: at, ..Default::default() });
        self.emit(Stamped { seq, at, event: Event::MessageChanged { id, session, status } }, batch);
    }

    fn emit(&mut self, stamped: Stamped, batch: &mut Batch) {
        self.pool.apply(&stamped);
        batch.events.push(stamped);
    }
}

fn percentiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_micros();
    format!("p50 {:>5} us, p99 {:>5} us", at(50), at(99))
}

fn timed(f: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    f();
    begun.elapsed()
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok().and_then(|n| n.parse().ok())
}

/// Returns a directory on a disk, which the system's temporary directory may not be; `POOL_SPEED_DIR`
/// overrides it.
fn directory() -> TempDir {
    tempfile::tempdir_in(env::var_os("POOL_SPEED_DIR").unwrap_or("/var/tmp".into())).unwrap()
}

/// Appends to a log in the same directory, and returns the time of the write and its fdatasync.
fn append(log: &mut File, bytes: usize) -> Duration {
    let bytes = vec![b'x'; bytes];
    timed(|| {
        log.write_all(&bytes).unwrap();
        log.sync_data().unwrap();
    })
}

#[expect(clippy::print_stdout, reason = "it prints times")]
fn rounds(name: &str, store: &mut Store, load: &mut Load, log: &mut File) {
    let mut times = [const { Vec::new() }; 5];
    for _ in 0..400 {
        for (n, messages) in [1, 64].into_iter().enumerate() {
            times[n].push(append(log, messages * 400));
            let mut batch = Batch::default();
            (0..messages).for_each(|_| load.queue(&mut batch));
            times[2 + n].push(timed(|| store.commit(&load.pool, &batch.events, &batch.bodies).unwrap()));
        }
        let id = MessageId(load.pool.seq().0 - 60);
        let mut batch = Batch::default();
        load.change(id, MessageState::Claimed, &mut batch);
        times[4].push(timed(|| store.commit(&load.pool, &batch.events, &batch.bodies).unwrap()));
    }
    let names = ["floor, 1", "floor, 64", "commit, 1 enqueue", "commit, 64 enqueues", "commit, 1 claim"];
    for (what, times) in names.into_iter().zip(times) {
        println!("{name}: {what:20} {}", percentiles(times));
    }
}

#[test]
#[ignore = "prints times"]
fn speed_of_a_commit_and_of_an_open() {
    let messages = number("POOL_MESSAGES").unwrap_or(1_000_000);
    let dir = directory();
    let path = dir.path().join("pool.redb");
    let mut log = File::create(dir.path().join("log")).unwrap();
    let mut store = Store::open(&path, |_| {}).unwrap().0;
    let mut load = Load::new(&mut store);
    rounds("empty", &mut store, &mut load, &mut log);
    let filled = timed(|| {
        while load.pool.seq().0 < messages {
            let mut batch = Batch::default();
            (0..1024).for_each(|_| load.queue(&mut batch));
            store.commit(&load.pool, &batch.events, &batch.bodies).unwrap();
        }
    });
    println!("filled in {filled:?}, {} bytes", store.bytes());
    rounds("full", &mut store, &mut load, &mut log);
    let crashed = dir.path().join("crashed.redb");
    std::fs::copy(&path, &crashed).unwrap();
    File::open(&crashed).unwrap().sync_all().unwrap();
    store.close().unwrap();
    for (what, path) in [("closed", &path), ("closed", &path), ("crashed", &crashed)] {
        let begun = Instant::now();
        let (store, loaded) = Store::open(path, |_| {}).unwrap();
        println!("open of a {what} file: {:?}, {}", begun.elapsed(), memory());
        assert!(loaded.pool == load.pool);
        store.close().unwrap();
    }
}

fn memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().filter(|l| l.starts_with("VmRSS") || l.starts_with("VmHWM")).collect::<Vec<_>>().join(", ")
}

/// A thousand commits with `POOL_ENQUEUES` messages each, for `strace -c`.
#[test]
#[ignore = "for system call counts"]
fn speed_of_a_thousand_commits() {
    let messages = number("POOL_ENQUEUES").unwrap_or(1);
    let dir = directory();
    let mut store = Store::open(&dir.path().join("pool.redb"), |_| {}).unwrap().0;
    let mut load = Load::new(&mut store);
    for _ in 0..1000 {
        let mut batch = Batch::default();
        (0..messages).for_each(|_| load.queue(&mut batch));
        store.commit(&load.pool, &batch.events, &batch.bodies).unwrap();
    }
}

/// Returns a file with this number of queued messages; `POOL_MESSAGES` overrides it.
fn filled(dir: &Path, messages: u64) -> (PathBuf, Store) {
    let messages = number("POOL_MESSAGES").unwrap_or(messages);
    let path = dir.join("pool.redb");
    let mut store = Store::open(&path, |_| {}).unwrap().0;
    let mut load = Load::new(&mut store);
    while load.pool.seq().0 < messages {
        let mut batch = Batch::default();
        (0..1024).for_each(|_| load.queue(&mut batch));
        store.commit(&load.pool, &batch.events, &batch.bodies).unwrap();
    }
    (path, store)
}

/// Also for a profiler.
#[test]
#[ignore = "prints times"]
fn speed_of_ten_opens() {
    let dir = directory();
    let (path, store) = filled(dir.path(), 300_000);
    store.close().unwrap();
    for _ in 0..10 {
        let begun = Instant::now();
        let (store, _) = Store::open(&path, |_| {}).unwrap();
        println!("{:?}, {}", begun.elapsed(), memory());
        store.close().unwrap();
    }
}

#[test]
#[ignore = "prints times"]
fn speed_of_maintenance() {
    let dir = directory();
    let (_, mut store) = filled(dir.path(), 1_000_000);
    let at = |name: &str| dir.path().join(name);
    let told = |what: &str, time: Duration| println!("{what}: {time:?}, {}", memory());
    told("check", timed(|| assert!(check(&store).unwrap().problems.is_empty())));
    told("backup", timed(|| backup(&store, &at("backup")).unwrap()));
    told("export", timed(|| export(&store, &mut File::create(at("lines")).unwrap()).unwrap()));
    let mut lines = BufReader::new(File::open(at("lines")).unwrap());
    told("import", timed(|| assert!(import(&at("import"), &mut lines).unwrap() > 0)));
    told("compact", timed(|| println!("{:?}", store.compact().unwrap())));
    told("check of a file", timed(|| assert!(check_file(&at("backup")).unwrap().1.problems.is_empty())));
}
