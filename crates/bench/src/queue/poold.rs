//! The subject itself: messages to sessions, over poold's socket.

use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use protocol::frame::{self, PREFIX_LEN};
use protocol::hello::HelloReply;
use protocol::request::{Ack, Claim, ClaimRef, Send};
use protocol::{Call, Frame, Hello, OpId, OsBytes, Request, Response, Role, SessionRef};

use super::drive::{Client, Talk, Turn};
use super::subject::{BODY, Load, Server, Work};
use crate::pool;

/// Kind of the messages that are only enqueued.
pub(super) const KIND: &str = "bench";
/// Kind of the messages that are claimed too.
const TAKEN: &str = "cycle";
/// Waiting time of a claim, in milliseconds: its message is there already.
const WAIT_MS: u64 = 10_000;

/// Sessions of a running pool.
pub(super) struct Poold {
    socket: PathBuf,
    sessions: Rc<[SessionRef]>,
}

impl Poold {
    /// The sessions with these names, at this daemon.
    pub(super) fn new(socket: &Path, names: &[String]) -> Self {
        Self { socket: socket.to_owned(), sessions: names.iter().cloned().map(SessionRef).collect() }
    }
}

impl Server for Poold {
    fn name(&self) -> &'static str {
        if self.sessions.len() == 1 { "poold, one session" } else { "poold, many sessions" }
    }

    fn can(&self, load: Load) -> bool {
        // A session has one claimed message of a kind at a time.
        load.work == Work::Enqueue || self.sessions.len() >= load.clients.max(2)
    }

    fn client(&self, work: Work, number: usize) -> Result<Client> {
        let socket = connect(&self.socket, Role::Client)?;
        let (step, hasher) = (Step::Send, RandomState::new());
        let (sessions, at) = (self.sessions.clone(), number);
        Client::at(socket, Calls { work, sessions, at, calls: 0, hasher, step })
    }
}

/// Connects, with the handshake.
pub(super) fn connect(path: &Path, role: Role) -> Result<UnixStream> {
    let mut socket = UnixStream::connect(path)?;
    socket.write_all(&frame::encode(&Hello::new(role, pool::NAME, "bench"))?)?;
    let mut prefix = [0; PREFIX_LEN];
    socket.read_exact(&mut prefix)?;
    let mut payload = vec![0; frame::length(prefix)?];
    socket.read_exact(&mut payload)?;
    match frame::decode::<HelloReply>(&payload)? {
        Ok(_welcome) => Ok(socket),
        Err(refusal) => bail!("{refusal}"),
    }
}

/// Builds a message of this kind.
pub(crate) fn message(session: SessionRef, kind: &str, body: &[u8]) -> Request {
    Request::Send(Send {
        session,
        body: OsBytes(body.to_vec()),
        kind: kind.to_owned(),
        origin: "bench".to_owned(),
        enter: true,
        ..Send::default()
    })
}

/// The calls of one client.
struct Calls {
    work: Work,
    sessions: Rc<[SessionRef]>,
    /// Index of the next session; a cycle stays with its own.
    at: usize,
    calls: u64,
    /// Source of unique operation ids.
    hasher: RandomState,
    step: Step,
}

enum Step {
    Send,
    Claim,
    Ack(ClaimRef),
}

impl Calls {
    fn session(&self) -> SessionRef {
        self.sessions[self.at % self.sessions.len()].clone()
    }

    fn request(&mut self) -> Request {
        match self.step {
            Step::Send if self.work == Work::Enqueue => {
                let request = message(self.session(), KIND, &BODY);
                self.at += 1;
                request
            }
            Step::Send => message(self.session(), TAKEN, &BODY),
            Step::Claim => Request::Claim(Claim {
                scope: self.session().into(),
                kinds: vec![TAKEN.to_owned()],
                max: 1,
                lease_ms: None,
                wait_ms: WAIT_MS,
            }),
            Step::Ack(held) => Request::Ack(Ack { held, result: None }),
        }
    }

    fn operation(&self) -> OpId {
        let half = |salt: u8| self.hasher.hash_one((self.calls, salt));
        OpId::Random((u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes())
    }
}

impl Talk for Calls {
    fn ask(&mut self, to: &mut Vec<u8>) -> Result<()> {
        self.calls += 1;
        let (id, op, request) = (self.calls, Some(self.operation()), self.request());
        to.extend(frame::encode(&Call { id, op, lock: None, request })?);
        Ok(())
    }

    fn answer(&mut self, from: &[u8]) -> Result<Option<(usize, Turn)>> {
        let Some((prefix, rest)) = from.split_first_chunk::<PREFIX_LEN>() else { return Ok(None) };
        let length = frame::length(*prefix)?;
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let response = match frame::decode(payload)? {
            Frame::Reply { reply: Ok(response), .. } => response,
            Frame::Reply { reply: Err(refusal), .. } => bail!("poold: {refusal}"),
            other => bail!("poold sends {other:?}"),
        };
        let (next, turn) = match (&self.step, response) {
            (Step::Send, Response::Sent(_)) if self.work == Work::Enqueue => (Step::Send, Turn::Over),
            (Step::Send, Response::Sent(_)) => (Step::Claim, Turn::Further),
            (Step::Claim, Response::Claimed(claimed)) => {
                let message = &claimed.first().context("poold has no message to claim")?.message;
                let token = message.status.token.context("a claim without a token")?;
                (Step::Ack(ClaimRef { id: message.id, token }), Turn::Further)
            }
            (Step::Ack(_), Response::Message(_)) => (Step::Send, Turn::Over),
            (_, other) => bail!("poold answers {other:?}"),
        };
        self.step = next;
        Ok(Some((PREFIX_LEN + length, turn)))
    }
}

#[cfg(test)]
mod tests {
    use protocol::refusal::Refusal;

    use super::*;

    fn calls(sessions: usize) -> Calls {
        let sessions = (0..sessions).map(|n| SessionRef(format!("s{n}"))).collect();
        Calls { work: Work::Enqueue, sessions, at: 1, calls: 0, hasher: RandomState::new(), step: Step::Send }
    }

    #[test]
    fn messages_are_spread_and_never_repeated() {
        let mut calls = calls(2);
        let mut asked = Vec::new();
        let mut next = || -> Call {
            asked.clear();
            calls.ask(&mut asked).unwrap();
            frame::decode(&asked[PREFIX_LEN..]).unwrap()
        };
        let (one, two, three) = (next(), next(), next());
        let session = |call: &Call| match &call.request {
            Request::Send(send) => send.session.0.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!([&one, &two, &three].map(session), ["s1", "s0", "s1"]);
        assert!(one.op != two.op && two.op != three.op && one.op != three.op);
    }

    #[test]
    fn a_refusal_is_an_error() {
        let refusal = Refusal::refused("full");
        let frame = frame::encode(&Frame::Reply { id: 1, reply: Err(refusal) }).unwrap();
        assert!(calls(1).answer(&frame[..frame.len() - 1]).unwrap().is_none());
        assert!(calls(1).answer(&frame).is_err());
    }
}
