//! Golden vectors of the wire protocol: every variant of every type that crosses it, as bincode and as JSON,
//! and the files and the nudge of old panes' inits. `BLESS=1 cargo test` writes missing vectors. An existing
//! one is never changed, because some peer speaks it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};

use protocol::diff::Change;
use protocol::frame::{decode_record, encode_record, wrap};
use protocol::hello::HelloReply;
use protocol::job::{ExitRecord, JOB_VERSION, Job, Started, StderrLog, nudge, parse_nudge};
use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{Action, Candidate, CandidateKind, Lease, Leftovers, Outcome, Rule, Verdict};
use protocol::reply::{Capacity, Explained, LockView, Locked, Pruned, WatcherCommand};
use protocol::request::{Disposition, Extent, Observe, Resolution, Until, View};
use protocol::session::{Conversation, DeleteMode, SessionLock};
use protocol::tmux::{Server, TmuxState};
use protocol::usage::Account;
use protocol::{
    Call, ErrorCode, Event, Frame, Hello, Lifecycle, Limits, Message, MessageState, MessageStatus, OpId,
    OsBytes, ProcId, Reason, Refusal, Request, Response, Role, Session, SessionId, Stamped, Tag, Timestamp,
    Usage, Welcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::any::{Choose, made};

pub(crate) trait Wire: Serialize + DeserializeOwned + PartialEq + Debug {}
impl<T: Serialize + DeserializeOwned + PartialEq + Debug> Wire for T {}

/// The values of the vectors. If `full`, numbers count up, optional values are present and lists have one
/// item; otherwise all are empty. The outermost enum has the requested variant.
struct Sample {
    full: bool,
    outer: Option<usize>,
    numbers: u64,
    variants: &'static [&'static str],
}

impl Choose for &mut Sample {
    fn number(&mut self) -> u64 {
        self.numbers += u64::from(self.full);
        self.numbers
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.text().into_bytes()
    }

    fn text(&mut self) -> String {
        format!("a{}", self.number())
    }

    fn yes(&mut self) -> bool {
        self.full
    }

    fn count(&mut self) -> usize {
        usize::from(self.full)
    }

    fn variant(&mut self, variants: &'static [&'static str]) -> usize {
        if let Some(outer) = self.outer.take() {
            self.variants = variants;
            return outer;
        }
        usize::from(self.full && variants.len() > 1)
    }
}

/// Returns such a value, with the names of all variants if it is an enum.
pub(crate) fn sample<T: Wire>(variant: usize, full: bool) -> (T, &'static [&'static str]) {
    let mut rule = Sample { full, outer: Some(variant), numbers: 0, variants: &[] };
    let value = made(&mut rule).unwrap();
    (value, rule.variants)
}

/// The vectors of a group of types in two files: wire format and JSON.
#[derive(Default)]
pub(crate) struct Vectors {
    wire: BTreeMap<String, String>,
    json: BTreeMap<String, String>,
}

impl Vectors {
    fn value<T: Wire>(mut self, name: &str, value: &T) -> Self {
        let record = encode_record(value).unwrap();
        let json = serde_json::to_string(value).unwrap();
        assert_eq!(&decode_record::<T>(&record).unwrap(), value, "{name}");
        assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{name}");
        self.wire.insert(name.to_owned(), hex(&record));
        self.json.insert(name.to_owned(), json);
        self
    }

    fn both<T: Wire>(self, name: &str, full: &T, least: &T) -> Self {
        if full == least {
            return self.value(name, full);
        }
        self.value(&format!("{name}.full"), full).value(&format!("{name}.least"), least)
    }

    pub(crate) fn of_struct<T: Wire>(self, name: &str) -> Self {
        self.both(name, &sample::<T>(1, true).0, &sample::<T>(0, false).0)
    }

    pub(crate) fn of_enum<T: Wire>(self, name: &str) -> Self {
        self.of_enum_in(name, |variant: T| variant)
    }

    /// Adds every variant, wrapped in the type in which it crosses the wire.
    pub(crate) fn of_enum_in<T: Wire, W: Wire>(self, name: &str, within: impl Fn(T) -> W) -> Self {
        let (_, variants) = sample::<T>(0, false);
        variants.iter().enumerate().fold(self, |vectors, (index, variant)| {
            let [full, least] = [true, false].map(|full| within(sample(index, full).0));
            vectors.both(&format!("{name}.{}", variant.to_lowercase()), &full, &least)
        })
    }

    pub(crate) fn check(self, file: &str) {
        compare(&format!("{file}.hex"), &self.wire);
        compare(&format!("{file}.json.txt"), &self.json);
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Compares with a file of `name value` lines.
pub(crate) fn compare(file: &str, expected: &BTreeMap<String, String>) {
    let path = directory().join(file);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut known: BTreeMap<_, _> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let missing: Vec<_> = expected.iter().filter(|(name, _)| !known.contains_key(name.as_str())).collect();
    if std::env::var_os("BLESS").is_some() && !missing.is_empty() {
        let added: String = missing.iter().map(|(name, value)| format!("{name} {value}\n")).collect();
        fs::write(&path, text.clone() + &added).unwrap();
        known.extend(missing.into_iter().map(|(name, value)| (name.as_str(), value.as_str())));
    }
    for (name, value) in expected {
        let golden = known.get(name.as_str());
        let golden = golden.unwrap_or_else(|| panic!("{file}: {name} has no vector; BLESS=1 writes it"));
        assert_eq!(
            golden, value,
            "{file}: {name} changed, and peers speak it as it was: make a new variant instead, or a new version without it"
        );
    }
    let gone: Vec<_> = known.keys().filter(|name| !expected.contains_key(**name)).collect();
    assert!(gone.is_empty(), "{file}: no longer spoken: {gone:?}");
}

#[test]
fn hello() {
    let first = Hello::new(Role::Client, "default", "poolctl 0.1.0");
    Vectors::default()
        .value("hello.poolctl", &first)
        .of_struct::<Hello>("hello")
        .of_struct::<Welcome>("welcome")
        .of_struct::<Refusal>("refusal")
        .of_enum::<HelloReply>("hello-reply")
        .of_enum::<Role>("role")
        .check("hello");
}

#[test]
fn calls() {
    Vectors::default()
        .of_struct::<Call>("call")
        .of_enum_in("request", |request: Request| Call { id: 1, op: None, lock: None, request })
        .of_enum::<OpId>("op-id")
        .of_enum::<Extent>("extent")
        .of_enum::<Resolution>("resolution")
        .of_enum::<Until>("until")
        .of_enum::<Disposition>("then")
        .check("calls");
}

#[test]
fn frames() {
    Vectors::default()
        .of_enum::<Frame>("frame")
        .of_enum_in("response", |response: Response| Frame::Reply { id: 1, reply: Ok(response) })
        .of_enum_in("refusal", |code: ErrorCode| Frame::Reply {
            id: 1,
            reply: Err(Refusal::new(code, "why")),
        })
        .of_enum::<WatcherCommand>("ask")
        .check("frames");
}

#[test]
fn events() {
    Vectors::default()
        .of_enum::<Event>("event")
        .of_enum_in("lane-event", Event::Lane)
        .of_struct::<Stamped>("stamped")
        .of_struct::<Session>("session")
        .of_struct::<SessionLock>("session-lock")
        .of_struct::<Message>("message")
        .of_struct::<MessageStatus>("message-status")
        .of_enum::<Lifecycle>("lifecycle")
        .of_enum::<Reason>("reason")
        .of_enum::<DeleteMode>("delete-mode")
        .of_enum::<MessageState>("message-state")
        .check("events");
}

#[test]
fn life() {
    Vectors::default()
        .of_struct::<Policy>("policy")
        .of_enum::<RestartPolicy>("restart-policy")
        .of_struct::<Budget>("budget")
        .of_struct::<Conversation>("conversation")
        .of_struct::<Account>("account")
        .of_struct::<Limits>("limits")
        .of_struct::<Usage>("usage")
        .of_struct::<Capacity>("room")
        .of_struct::<Pruned>("pruned")
        .of_enum::<Leftovers>("leftovers")
        .check("life");
}

#[test]
fn observations() {
    Vectors::default()
        .of_struct::<Observe>("observe")
        .of_enum::<View>("view")
        .of_enum::<Change>("change")
        .of_enum::<Server>("server")
        .of_struct::<TmuxState>("tmux-state")
        .check("observations");
}

#[test]
fn reaping() {
    Vectors::default()
        .of_enum::<CandidateKind>("candidate-kind")
        .of_struct::<Candidate>("candidate")
        .of_struct::<Lease>("lease")
        .of_struct::<Verdict>("verdict")
        .of_enum::<Outcome>("outcome")
        .of_enum::<Rule>("rule")
        .of_enum::<Action>("action")
        .of_struct::<Explained>("explained")
        .of_struct::<Locked>("locked")
        .of_struct::<LockView>("lock-view")
        .check("reaping");
}

/// Returns a checksum of all vectors of the wire format.
fn fingerprint() -> String {
    let mut files: Vec<_> = fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "hex"));
    files.sort();
    let mut hasher = crc32fast::Hasher::new();
    for path in files {
        let text = fs::read_to_string(path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.iter().for_each(|line| hasher.update(line.as_bytes()));
    }
    format!("{:08x}", hasher.finalize())
}

/// Programs of one version understand each other: a changed encoding needs a new version. `BLESS=1` adds the
/// line of a new version; existing lines stay.
#[test]
fn a_change_of_the_wire_is_a_new_version() {
    let path = directory().join("versions.txt");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let known: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    let (version, now) = (protocol::hello::VERSION.to_string(), fingerprint());
    match known.get(version.as_str()) {
        Some(known) => assert_eq!(*known, now, "raise hello::VERSION, then BLESS=1 writes its line"),
        None if std::env::var_os("BLESS").is_some() => {
            fs::write(&path, format!("{text}{version} {now}\n")).unwrap();
        }
        None => panic!("version {version} has no line in versions.txt; BLESS=1 writes it"),
    }
}

const TAG: Tag = Tag([0xab; 16]);

#[test]
fn the_nudge() {
    let payload = nudge(TAG);
    compare("nudge.hex", &BTreeMap::from([("nudge".to_owned(), hex(&wrap(&payload)))]));
    assert_eq!(parse_nudge(&payload), Some(TAG));
    assert_eq!(parse_nudge(&payload[..23]), None);
}

/// Checks that a file is readable as written now, and with the fields of a later version.
pub(crate) fn file<T: Wire>(name: &str, value: &T) -> (String, String) {
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value);
    let later = json.replacen('{', r#"{"of_a_later_version":[{"x":1}],"#, 1);
    assert_eq!(&serde_json::from_str::<T>(&later).unwrap(), value);
    (name.to_owned(), json)
}

#[test]
fn files_of_an_init() {
    let job = Job {
        version: JOB_VERSION,
        session: SessionId(12),
        tag: TAG,
        argv: vec!["/bin/sh".into(), "-c".into(), OsBytes(b"echo \xff".to_vec())],
        cwd: "/home/me/work".into(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("ODD".into(), OsBytes(vec![0xfe]))],
        see_tmux: true,
        socket: "/home/me/.local/state/tmux-pool/default/run/poold.sock".into(),
        grace_ms: 2000,
        umask: 0o022,
        limits: "mem=2G,cpu=150%,tasks=200,nofile=4096,core=0,nice=10,cpus=0-3,5".parse().unwrap(),
        cgroup: Some("/sys/fs/cgroup/pool/12".into()),
        leftovers: Leftovers::Report,
        private: Some("/home/me/.local/state/tmux-pool/default/run/12".into()),
        stderr: Some(StderrLog {
            dir: "/home/me/.local/state/tmux-pool/default/sessions/sess_12/logs/stderr".into(),
            max_size: 33_554_432,
            keep: 4,
            compress: true,
        }),
    };
    let process = |pid| ProcId { pid, start: 123_456 };
    let at = Timestamp(1_700_000_000_123);
    let unenforced = vec!["cpu: no such control group".to_owned()];
    let started = Started { version: JOB_VERSION, init: process(41), agent: process(42), at, unenforced };
    let ended = ExitRecord {
        version: JOB_VERSION,
        code: Some(3),
        signal: None,
        exec_error: None,
        at,
        user_us: 1500,
        system_us: 700,
        max_rss_kib: 2048,
        oom_kills: Some(1),
    };
    let unable = ExitRecord {
        code: Some(127),
        exec_error: Some("no such program".to_owned()),
        oom_kills: None,
        ..ended.clone()
    };
    let files =
        [file("job", &job), file("started", &started), file("exit", &ended), file("exit.unable", &unable)];
    compare("files.json.txt", &BTreeMap::from(files));
}

/// Files of earlier releases: of the first one, and of the one that introduced limits.
#[test]
fn files_of_old_panes() {
    let read = |name: &str| {
        let files = include_str!("files-of-old-panes.txt").lines();
        files.filter_map(|line| line.split_once(' ')).find(|(of, _)| *of == name).unwrap().1
    };
    let job: Job = serde_json::from_str(read("job")).unwrap();
    assert_eq!((job.limits, job.cgroup), (Limits::default(), None));
    assert_eq!((job.leftovers, job.private), (Leftovers::Kill, None));
    let bounded: Job = serde_json::from_str(read("job.bounded")).unwrap();
    assert_eq!((bounded.limits.is_empty(), bounded.cgroup.is_some()), (false, true));
    assert_eq!((bounded.leftovers, bounded.private), (Leftovers::Kill, None));
    assert_eq!((job.session, job.umask, job.argv.len()), (SessionId(12), 0o022, 3));
    let started: Started = serde_json::from_str(read("started")).unwrap();
    assert_eq!((started.agent.pid, started.unenforced), (42, vec![]));
    let exits = ["exit", "exit.unable"].map(|name| serde_json::from_str::<ExitRecord>(read(name)).unwrap());
    assert_eq!(exits.map(|exit| (exit.code, exit.oom_kills)), [(Some(3), None), (Some(127), None)]);
}
