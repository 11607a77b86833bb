//! Load on a queue: messages are sent, worked and settled while the daemon comes and goes; the clients record
//! every answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use protocol::blocking::Connection;
use protocol::request::{Ack, Claim, ClaimRef, Disposition, Fail, Send};
use protocol::{
    Claimed, ErrorCode, Hello, OpId, OsBytes, Refusal, Request, Response, Role, SessionRef, Token,
};
use serde_json::Value;

use crate::harness::{PATIENCE, Pool};

/// Message kinds with a worker each; `SILENT` is the kind whose worker stops sending heartbeats.
const KINDS: [&str; 2] = ["one", "two"];
const SILENT: &str = "silent";

/// Lease in milliseconds of claims of the kind `SILENT`.
const LEASE_MS: u64 = 1000;

/// The answers that the clients got.
#[derive(Debug, Default)]
pub(super) struct Load {
    stop: AtomicBool,
    sent: Mutex<BTreeMap<u64, String>>,
    worked: Mutex<BTreeMap<u64, Token>>,
    done: AtomicUsize,
}

/// Sets the flag on drop, also when a test fails.
#[derive(Debug)]
pub(super) struct Running<'a>(pub(super) &'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client that repeats a request until it is answered, over as many connections as it takes.
struct Persistent<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Persistent<'_> {
    /// Returns the answer; repeats after those that leave the outcome unknown.
    #[track_caller]
    fn ask(&mut self, op: &OpId, request: &Request) -> Result<Response, Refusal> {
        let began = Instant::now();
        loop {
            let unknown =
                |refusal: &Refusal| matches!(refusal.code, ErrorCode::Storage | ErrorCode::Unavailable);
            match self.once(op, request) {
                Some(Err(refusal)) if unknown(&refusal) => {}
                Some(reply) => return reply,
                None => {}
            }
            assert!(began.elapsed() < PATIENCE, "no answer to {request:?}: {}", self.pool.logs());
            self.connection = None;
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn once(&mut self, op: &OpId, request: &Request) -> Option<Result<Response, Refusal>> {
        if self.connection.is_none() {
            let hello = Hello::new(Role::Client, "", "test");
            let limit = Some(Duration::from_secs(5));
            self.connection = Some(Connection::connect_within(&self.pool.socket(), &hello, limit).ok()?.0);
        }
        let connection = self.connection.as_mut()?;
        connection.set_timeout(Some(PATIENCE));
        connection.call(Some(op.clone()), None, request.clone()).ok()
    }
}

fn op() -> OpId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    OpId::Named(format!("load-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

impl Load {
    /// Number of messages worked so far.
    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::Relaxed)
    }

    /// Starts senders and workers for the session `web`. When the returned guard is dropped, each ends after
    /// its current message.
    pub(super) fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        pool: &'scope Pool,
    ) -> Running<'scope> {
        for kind in KINDS {
            scope.spawn(move || self.send(pool, kind));
            scope.spawn(move || self.work(pool, kind));
        }
        scope.spawn(move || self.send(pool, SILENT));
        scope.spawn(move || self.fall_silent(pool));
        Running(&self.stop)
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }

    /// Sends messages, never far ahead of the workers.
    fn send(&self, pool: &Pool, kind: &str) {
        let mut client = Persistent { pool, connection: None };
        for n in 0.. {
            while self.goes_on() && n > 200 + self.done() {
                thread::sleep(Duration::from_millis(1));
            }
            if !self.goes_on() {
                return;
            }
            let key = format!("{kind}-{n}");
            let send = Send {
                session: SessionRef("web".to_owned()),
                body: OsBytes(key.clone().into_bytes()),
                kind: kind.to_owned(),
                key: Some(key.clone()),
                origin: "load".to_owned(),
                enter: true,
                ..Send::default()
            };
            match client.ask(&op(), &Request::Send(send)) {
                Ok(Response::Sent(sent)) => drop(self.sent.lock().unwrap().insert(sent.message.id.0, key)),
                Err(refusal) if refusal.code == ErrorCode::Refused => thread::sleep(Duration::from_millis(5)),
                other => panic!("{key}: {other:?}"),
            }
        }
    }

    fn claim(client: &mut Persistent<'_>, kind: &str, lease_ms: Option<u64>) -> Option<Claimed> {
        let session = SessionRef("web".to_owned());
        let claim =
            Claim { scope: session.into(), kinds: vec![kind.to_owned()], max: 1, lease_ms, wait_ms: 200 };
        // If the answer was lost, the repeat under the same id returns the same claim.
        match client.ask(&op(), &Request::Claim(claim)) {
            Ok(Response::Claimed(mut claimed)) => claimed.pop(),
            other => panic!("{kind}: {other:?}"),
        }
    }

    fn work(&self, pool: &Pool, kind: &str) {
        let mut client = Persistent { pool, connection: None };
        let mut last = 0;
        while self.goes_on() {
            let Some(claimed) = Self::claim(&mut client, kind, None) else { continue };
            let (id, token) = (claimed.message.id, claimed.message.status.token.unwrap());
            assert!(id.0 >= last, "{kind}: {id} after {last}");
            last = id.0;
            let held = ClaimRef { id, token };
            // Every fifth message is given back once.
            if claimed.message.status.attempts == 1 && id.0 % 5 == 0 {
                let fail = Fail { held, reason: "not yet".to_owned(), then: Disposition::Later(Some(0)) };
                client.ask(&op(), &Request::Fail(fail)).unwrap();
                continue;
            }
            client.ask(&op(), &Request::Heartbeat(vec![held])).unwrap();
            client.ask(&op(), &Request::Ack(Ack { held, result: None })).unwrap();
            let before = self.worked.lock().unwrap().insert(id.0, token);
            assert!(before.is_none(), "{id} was given out again after it was worked");
            self.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Claims messages and then sends no heartbeats.
    fn fall_silent(&self, pool: &Pool) {
        let mut client = Persistent { pool, connection: None };
        let mut tokens: BTreeMap<u64, Token> = BTreeMap::new();
        while self.goes_on() {
            let Some(claimed) = Self::claim(&mut client, SILENT, Some(LEASE_MS)) else { continue };
            let token = claimed.message.status.token.unwrap();
            let before = tokens.insert(claimed.message.id.0, token);
            assert!(before.is_none_or(|before| before < token), "{} after {before:?}", token);
        }
    }

    /// Asserts that the stored messages agree with all answers, and that each message has a consistent
    /// history.
    #[track_caller]
    pub(super) fn holds(&self, pool: &Pool) {
        let events = pool.lines(&["events"]);
        let of = |event: &Value, kind: &str| {
            (event["kind"] == kind && event["id"].is_u64()).then(|| event["id"].as_u64().unwrap())
        };
        let mut queued: BTreeMap<String, u64> = BTreeMap::new();
        for event in
            events.iter().filter(|event| event["kind"] == "message_queued" && event["origin"] == "load")
        {
            let key = event["key"].as_str().unwrap().to_owned();
            let twice = queued.insert(key.clone(), event["id"].as_u64().unwrap());
            assert!(twice.is_none(), "{key} is there twice");
        }
        let mine: BTreeSet<u64> = queued.values().copied().collect();
        for (id, key) in &*self.sent.lock().unwrap() {
            assert_eq!(queued.get(key), Some(id), "{key} was acknowledged");
        }
        let mut done: BTreeSet<u64> = BTreeSet::new();
        let settled = events.iter().filter_map(|event| of(event, "message_done"));
        for id in settled.filter(|id| mine.contains(id)) {
            assert!(done.insert(id), "{id} was done twice");
        }
        let worked = self.worked.lock().unwrap();
        let told: BTreeSet<u64> = worked.keys().copied().collect();
        let wrong: Vec<&u64> = told.symmetric_difference(&done).collect();
        assert!(wrong.is_empty(), "settled for the one and not for the other: {wrong:?}");
        let mut open: BTreeSet<u64> = BTreeSet::new();
        let mut tokens: BTreeMap<u64, Token> = BTreeMap::new();
        for event in &events {
            let begins = of(event, "message_claimed");
            let ends =
                ["message_failed", "message_done", "message_dead"].iter().find_map(|kind| of(event, kind));
            if let Some(id) = begins.filter(|id| mine.contains(id)) {
                assert!(open.insert(id), "{id} has two holders: {event}");
                let token: Token = event["token"].as_str().unwrap().parse().unwrap();
                let before = tokens.insert(id, token);
                assert!(before.is_none_or(|before| before < token), "{event}");
            }
            if let Some(id) = ends.filter(|id| mine.contains(id)) {
                assert!(open.remove(&id), "{id} had no holder: {event}");
            }
        }
        pool.ctl(&["check"]).expect(0);
    }
}
