//! Oversized fields: a request, a hook report or an observation with any one text or list at the longest that
//! fits into a frame is accepted or refused, and the daemon goes on.

use std::time::Duration;

use protocol::blocking::Connection;
use protocol::frame::{FRAME_MAX, encode};
use protocol::request::{Observe, View};
use protocol::{Hello, OpId, Request, Role, SessionId, variants};

use crate::any::{Choose, made};
use crate::harness::{PATIENCE, Pool, Program, eventually};

/// Chooses small values, but a long one for the text, byte string or list at `place`.
struct Longest {
    variant: Option<usize>,
    variants: usize,
    place: usize,
    met: usize,
    /// Length of the long value in bytes or list items.
    length: usize,
}

impl Longest {
    fn is_it(&mut self) -> bool {
        self.met += 1;
        self.met == self.place + 1
    }
}

impl Choose for &mut Longest {
    fn number(&mut self) -> u64 {
        1
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.text().into_bytes()
    }

    fn text(&mut self) -> String {
        if self.is_it() { "a".repeat(self.length) } else { "web".to_owned() }
    }

    fn yes(&mut self) -> bool {
        true
    }

    fn count(&mut self) -> usize {
        if self.is_it() { self.length / 8 } else { 1 }
    }

    fn variant(&mut self, variants: &'static [&'static str]) -> usize {
        self.variant.take().inspect(|_| self.variants = variants.len()).unwrap_or(variants.len() - 1)
    }
}

/// Builds the variant with the value at `place` as long as fits into a frame; also returns the numbers of
/// variants and of places.
fn longest<T: serde::Serialize + serde::de::DeserializeOwned>(
    variant: usize,
    place: usize,
) -> (Option<T>, usize, usize) {
    let (mut variants, mut places) = (0, 0);
    for length in [FRAME_MAX - 300, FRAME_MAX / 2, FRAME_MAX / 8, FRAME_MAX / 64] {
        let mut rule = Longest { variant: Some(variant), variants: 0, place, met: 0, length };
        let value: Option<T> = made(&mut rule);
        (variants, places) = (rule.variants, rule.met);
        if let Some(value) = value.filter(|value| encode(value).is_ok()) {
            return (Some(value), variants, places);
        }
    }
    (None, variants, places)
}

/// All variants, each once for every place with the value there at its longest.
fn all<T: serde::Serialize + serde::de::DeserializeOwned>() -> Vec<T> {
    let mut values = Vec::new();
    let mut variant = 0;
    loop {
        let (_, variants, _) = longest::<T>(variant, usize::MAX - 1);
        let (_, _, places) = longest::<T>(variant, usize::MAX - 1);
        values.extend((0..places).filter_map(|place| longest::<T>(variant, place).0));
        variant += 1;
        if variant >= variants {
            return values;
        }
    }
}

struct Peer {
    connection: Connection,
    calls: u64,
}

impl Peer {
    fn new(pool: &Pool, role: Role) -> Self {
        let hello = Hello::new(role, "default", "test");
        let (connection, _) = Connection::connect(&pool.socket(), &hello).unwrap();
        Self { connection, calls: 0 }
    }

    /// Sends the request; true if it was answered, with whatever.
    fn ask(&mut self, request: Request) -> bool {
        self.calls += 1;
        let op = Some(OpId::Random([u8::try_from(self.calls % 251).unwrap(); 16]));
        self.connection.call(op, None, request).is_ok()
    }
}

/// False for requests that wait long, end the session that the others refer to, or create files.
fn is_tried(request: &Request) -> bool {
    !matches!(request, variants!(Request: Wait Claim Lock NextCandidate Backup Compact))
}

/// Tag of the only session's incarnation, read from tmux.
fn tag_of(pool: &Pool) -> String {
    pool.tmux_panes("#{@pool_id}").into_iter().find(|tag| !tag.is_empty()).unwrap()
}

#[test]
fn whatever_is_at_its_longest_is_taken_or_refused_and_the_daemon_goes_on() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "sleep", "1000"]);
    let pid = pool.pid(Program::Poold).unwrap();
    let tag = tag_of(&pool).parse().unwrap();
    let session: SessionId = id.parse().unwrap();
    let mut peer = Peer::new(&pool, Role::Client);
    let mut tried = 0;
    for (n, mut request) in all::<Request>().into_iter().filter(is_tried).enumerate() {
        if let Request::Hook(hook) = &mut request {
            (hook.session, hook.tag, hook.id) = (session, tag, n as u64);
        }
        let what = format!("{:.120}", format!("{request:?}"));
        if !peer.ask(request) {
            peer = Peer::new(&pool, Role::Client);
        }
        assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None), "{what}");
        tried += 1;
    }
    assert!(tried > 80, "{tried}");
    hooks_of_every_kind(&pool, (session, tag), pid);
    pool.ok(&["check"]);
    pool.restart_poold();
    pool.ok(&["ls", "--all"]);
    pool.ok(&["check"]);
}

/// Signals are nested deeper than requests, so their variants are chosen here.
fn hooks_of_every_kind(pool: &Pool, (session, tag): (SessionId, protocol::Tag), pid: u32) {
    let mut peer = Peer::new(pool, Role::Client);
    for (n, signal) in all::<protocol::hook::HookEvent>().into_iter().enumerate() {
        let Some(mut hook) = longest::<protocol::hook::Hook>(0, usize::MAX - 1).0 else { continue };
        (hook.session, hook.tag, hook.id, hook.signal) = (session, tag, 1_000_000 + n as u64, signal);
        if let protocol::hook::HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
            *wait_ms = 0;
        }
        let what = format!("{:.120}", format!("{hook:?}"));
        if !peer.ask(Request::Hook(Box::new(hook))) {
            peer = Peer::new(pool, Role::Client);
        }
        assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None), "{what}");
    }
}

#[test]
fn an_observation_at_its_longest_is_taken_or_refused() {
    let pool = Pool::bare("");
    let pid = pool.start_poold();
    let mut peer = Peer::new(&pool, Role::Watcher);
    for (seq, view) in all::<View>().into_iter().enumerate() {
        let seq = seq as u64 + 1;
        let observe =
            Observe { watcher: 7, seq, asked: 0, age_ms: 0, sent_at_ms: None, complete: true, view };
        if !peer.ask(Request::Observe(observe)) {
            peer = eventually("another watcher is let in", PATIENCE, || {
                std::thread::sleep(Duration::from_millis(20));
                Some(Peer::new(&pool, Role::NextWatcher))
            });
        }
        assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None));
    }
}

#[test]
fn a_hook_report_of_two_megabytes_in_a_file_is_read_once_and_harms_nobody() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "sleep", "1000"]);
    let pid = pool.pid(Program::Poold).unwrap();
    let tag = tag_of(&pool);
    let hooks = pool.state().join("sessions").join(&id).join("hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    let big = "a".repeat(2_000_000);
    let report = serde_json::json!({"version": 1, "hook": {"session": id, "tag": tag, "id": 1, "at": 1, "agent": "x",
        "conversation": null, "transcript": big, "signal": {"working": {"what": big, "skill": big}}}});
    std::fs::write(hooks.join("0.json"), report.to_string()).unwrap();
    eventually("it is read", PATIENCE, || (!hooks.join("0.json").exists()).then_some(()));
    pool.ok(&["ls"]);
    assert_eq!((pool.pid(Program::Poold), pool.ended(Program::Poold)), (Some(pid), None));
    pool.restart_poold();
    pool.ok(&["ls"]);
}
