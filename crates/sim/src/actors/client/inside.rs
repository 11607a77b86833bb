//! Requests with the token of a lock: while its client holds it, and once more after it was given back. What others do
//! meanwhile is checked, too.

use std::collections::BTreeMap;

use protocol::request::{Keys, Kill, Restart};
use protocol::{PROMPT, Reply, Request, Response, SessionId, Token};

use super::Actor;
use crate::actors::errands;
use crate::rng::Rng;

/// Requests that are refused while somebody else has the lock of their session.
const REFUSED: [&str; 5] = ["kill", "restart", "park", "rename", "drain"];

impl Actor {
    /// Acts inside of a lock that it holds.
    pub(super) async fn act_inside(&mut self, (session, token): (SessionId, Token), rng: &mut Rng) {
        self.lock = Some((session, token));
        for _ in 0..rng.between(1, 3) {
            match rng.below(8) {
                0..4 => self.prompt_inside((session, token), rng.per_mille(600)).await,
                4..6 => drop(self.change("keys", keys(session)).await),
                6 => self.kill(session.into()).await,
                _ => {
                    self.land.judge.used_inside(token);
                    let (session, wait_slot_ms) = (session.into(), Some(5000));
                    let (grace_ms, fresh, clear) = (Some(1000), false, false);
                    let restart = Restart { session, grace_ms, fresh, clear, wait_slot_ms };
                    self.change("restart", Request::Restart(restart)).await;
                }
            }
        }
        self.lock = None;
    }

    async fn prompt_inside(&mut self, (session, token): (SessionId, Token), wake: bool) {
        let (body, before) = (format!("prompt {}", self.number()), self.sent.len());
        self.land.judge.feeds(token);
        self.send(session.into(), body, PROMPT, wake).await;
        if let Some(id) = self.sent.get(before) {
            self.land.judge.fed(token, *id);
        }
    }

    /// Acts once more by the token of a lock that was given back in this timeline: that has to be refused.
    pub(super) async fn act_too_late(
        &mut self,
        (session, token): (SessionId, Token),
        timeline: u64,
        rng: &mut Rng,
    ) {
        let body = format!("prompt {}", self.number());
        let (name, request) = match rng.below(3) {
            0 => ("send", Request::Send(errands::message(session.into(), body.clone(), PROMPT))),
            1 => ("keys", keys(session)),
            _ => ("kill", Request::Kill(Kill { session: session.into(), grace_ms: Some(1000) })),
        };
        self.lock = Some((session, token));
        let op = self.land.operation();
        let reply = self.repeat(&op, request).await;
        self.told(name, &body, &reply);
        self.lock = None;
        self.land.judge.count("checked:too late for a lock");
        if matches!(reply, Some(Ok(_))) && self.land.judge.timeline() == timeline {
            self.land
                .judge
                .violated(format!("L5: {name} to {session} is done by the token of an ended lock"));
        }
    }

    /// Checks that a request without a token was not carried out in a session whose lock somebody had from before the
    /// request to its answer. `locks` are those that were held before it.
    pub(super) fn check_outside(
        &self,
        (name, reply): (&str, &Option<Reply>),
        locks: &BTreeMap<SessionId, Token>,
    ) {
        let Some(Ok(Response::Session(found))) = reply else { return };
        let id = found.session.id;
        let held = locks.get(&id).filter(|_| self.lock.is_none() && REFUSED.contains(&name));
        if held.is_some_and(|token| self.land.judge.holds((id, *token))) {
            self.land.judge.violated(format!("L5: {name} of {id} is done, and somebody else has its lock"));
        }
    }
}

fn keys(session: SessionId) -> Request {
    Request::Keys(Keys { session: session.into(), keys: vec!["Escape".to_owned()] })
}
