//! Shared helpers: a pool without a watcher, a client on the socket, messages as shown.

use std::time::Duration;

use protocol::blocking::Connection;
use protocol::request::{Ack, Claim, ClaimRef, Disposition, Fail, Register, Send};
use protocol::{
    Claimed, ErrorCode, Hello, MessageId, OpId, OsBytes, Refusal, Reply, Request, Response, Role, SessionRef,
    TransportError,
};
use serde_json::Value;

use crate::harness::{PATIENCE, Pool, Talk, wait_until};

/// A pool of `poold` alone, with a session `web` that keeps running: all that queue tests need.
#[track_caller]
pub(super) fn pool(config: &str) -> Pool {
    let pool = Pool::bare(config);
    pool.start_poold();
    session(&pool, "web");
    pool
}

/// A session that keeps running.
#[track_caller]
pub(super) fn session(pool: &Pool, name: &str) -> String {
    pool.script(name, "exec sleep 1000")
}

/// A separate process that claims messages without being registered: requests as JSON lines.
#[track_caller]
pub(super) fn rpc(pool: &Pool) -> Talk {
    Talk::start(pool.poolctl().args(["--timeout", "30s", "rpc"]))
}

/// A registered worker in a process of its own; it runs `script` for each message.
#[track_caller]
pub(super) fn worker(pool: &Pool, flags: &[&str], script: &str) -> Talk {
    let mut command = pool.poolctl();
    Talk::start(command.args(["--json", "work", "web"]).args(flags).args(["--", "sh", "-c", script]))
}

/// Sends a message with `poolctl`; returns its id.
#[track_caller]
pub(super) fn send(pool: &Pool, kind: &str, text: &str) -> String {
    pool.ok(&["send", "web", "--kind", kind, text])
}

/// A message as `queue show` prints it.
#[track_caller]
pub(super) fn shown(pool: &Pool, id: impl ToString) -> Value {
    pool.json(&["queue", "show", "web", &id.to_string()])
}

/// As [`shown`], without the end of the lease, which is computed anew each time.
#[track_caller]
pub(super) fn lasting(pool: &Pool, id: impl ToString) -> Value {
    let mut message = shown(pool, id);
    message["claim"].as_object_mut().into_iter().for_each(|claim| drop(claim.remove("deadline_at")));
    message
}

#[track_caller]
pub(super) fn state(pool: &Pool, id: impl ToString) -> String {
    shown(pool, id)["state"].as_str().unwrap().to_owned()
}

#[track_caller]
pub(super) fn await_state(pool: &Pool, id: impl ToString, wanted: &str) {
    let id = id.to_string();
    wait_until(&format!("message {id} is {wanted}"), PATIENCE, || state(pool, &id) == wanted);
}

#[track_caller]
pub(crate) fn events(pool: &Pool, kinds: &[&str]) -> Vec<Value> {
    let mut args = vec!["events"];
    kinds.iter().for_each(|kind| args.extend(["--kind", kind]));
    pool.lines(&args)
}

/// A client on a connection of this process.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) connection: Connection,
}

/// Connects and says hello.
pub(crate) fn connect(pool: &Pool, role: Role) -> Connection {
    let hello = Hello::new(role, "", "test");
    let (mut connection, _) = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap();
    connection.set_timeout(Some(PATIENCE));
    connection
}

pub(crate) fn sending(kind: &str, body: &[u8]) -> Send {
    Send {
        session: SessionRef("web".to_owned()),
        body: OsBytes(body.to_vec()),
        kind: kind.to_owned(),
        origin: "test".to_owned(),
        enter: true,
        ..Send::default()
    }
}

pub(super) fn claiming(kinds: &[&str], max: u32, wait: Duration) -> Claim {
    Claim {
        scope: SessionRef("web".to_owned()).into(),
        kinds: kinds.iter().map(|kind| (*kind).to_owned()).collect(),
        max,
        lease_ms: None,
        wait_ms: u64::try_from(wait.as_millis()).unwrap(),
    }
}

/// A fresh operation id.
pub(super) fn op() -> OpId {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(0);
    OpId::Named(format!("op-{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The claim that came with a message.
#[track_caller]
pub(super) fn held(claimed: &Claimed) -> ClaimRef {
    ClaimRef { id: claimed.message.id, token: claimed.message.status.token.unwrap() }
}

/// Asserts that the reply is a refusal with this code.
#[track_caller]
pub(super) fn refused(reply: Reply, code: ErrorCode) -> Refusal {
    let refusal = reply.unwrap_err();
    assert_eq!(refusal.code, code, "{refusal:?}");
    refusal
}

impl Client {
    #[track_caller]
    pub(super) fn new(pool: &Pool) -> Self {
        Self { connection: connect(pool, Role::Client) }
    }

    /// A registered worker of `web`. Only where no reaper runs: it would kill this process.
    #[track_caller]
    pub(super) fn generator(pool: &Pool, kinds: &[&str]) -> Self {
        let mut client = Self { connection: connect(pool, Role::Generator) };
        let kinds = kinds.iter().map(|kind| (*kind).to_owned()).collect();
        let registered = client
            .call(None, Request::Register(Register { scope: SessionRef("web".to_owned()).into(), kinds }));
        assert!(matches!(registered, Ok(Response::Registered(_))), "{registered:?}");
        client
    }

    /// Makes a request, with an operation id or without.
    ///
    /// # Errors
    /// The connection's.
    pub(super) fn attempt(&mut self, op: Option<OpId>, request: Request) -> Result<Reply, TransportError> {
        self.connection.call(op, None, request)
    }

    #[track_caller]
    pub(super) fn call(&mut self, op: Option<OpId>, request: Request) -> Reply {
        self.attempt(op, request).unwrap()
    }

    #[track_caller]
    pub(super) fn send(&mut self, kind: &str, body: &[u8]) -> MessageId {
        self.sent(sending(kind, body)).unwrap()
    }

    #[track_caller]
    pub(super) fn sent(&mut self, send: Send) -> Result<MessageId, Refusal> {
        match self.call(Some(op()), Request::Send(send))? {
            Response::Sent(sent) => Ok(sent.message.id),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(super) fn claims(&mut self, op: Option<OpId>, claim: Claim) -> Vec<Claimed> {
        match self.call(op, Request::Claim(claim)) {
            Ok(Response::Claimed(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    /// Claims one message, if there is one now.
    #[track_caller]
    pub(super) fn take(&mut self, kinds: &[&str]) -> Option<Claimed> {
        self.claims(None, claiming(kinds, 1, Duration::ZERO)).pop()
    }

    /// Claims one message, waiting for it.
    #[track_caller]
    pub(super) fn await_one(&mut self, kinds: &[&str]) -> Claimed {
        self.claims(None, claiming(kinds, 1, PATIENCE)).pop().expect("a message comes")
    }

    #[track_caller]
    pub(super) fn ack(&mut self, held: ClaimRef) -> Reply {
        self.call(None, Request::Ack(Ack { held, result: None }))
    }

    #[track_caller]
    pub(super) fn fail(&mut self, held: ClaimRef, then: Disposition) -> Reply {
        self.call(None, Request::Fail(Fail { held, reason: "no".to_owned(), then }))
    }

    #[track_caller]
    pub(super) fn beat(&mut self, held: ClaimRef) -> Reply {
        self.call(None, Request::Heartbeat(vec![held]))
    }
}
