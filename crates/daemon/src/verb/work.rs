//! `work`: a worker registers, and claims messages as soon as there are some.

use std::sync::Arc;
use std::time::Duration;

use pool::worker::{self, Registration};
use pool::{Settings, queue};
use protocol::reply::Registered;
use protocol::request::{CLAIM_MAX, Claim, ClaimRef, Disposition, Register};
use protocol::worker::ClaimScope;
use protocol::{
    Claimed, ErrorCode, Event, GeneratorId, Holder, Message, MessageId, MessageReason, MessageState, OpId,
    OsBytes, ProcId, Refusal, Reply, Response, SessionId, Timestamp,
};

use crate::decide::queue::message;
use crate::decide::worker::expire;
use crate::engine::{Daemon, EngineHandle, Turn, WaitsFor};
use crate::verb::caller::{Caller, other_role};

/// Maximum waiting time of a claim.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// Registers the caller as a generator, at most once per connection.
pub(super) async fn register(daemon: &Arc<Daemon>, caller: &Caller, asked: Register) -> Reply {
    if !caller.is_generator {
        return Err(other_role());
    }
    pool::worker::configure::check_kinds(&asked.kinds)?;
    let lease_ms = protocol::time::millis(daemon.loaded().settings.queue.lease);
    let (connection, process) = (caller.connection, caller.process);
    if process.is_none() {
        let why =
            "a generator is ended before its messages go to another, and its process cannot be identified";
        return Err(Refusal::unavailable(why));
    }
    let register = move |turn: &mut Turn<'_>| {
        pool::worker::check_scope(turn.pool(), &asked.scope)?;
        let session = pool::worker::listed_under(turn.pool(), &asked.scope);
        let id = GeneratorId(turn.next_seq().0);
        let Some(worker) = turn.volatile.workers.get(connection) else {
            return Err(Refusal::unavailable("the connection has ended"));
        };
        if worker.registration().is_some() {
            return Err(Refusal::usage("a connection registers once"));
        }
        let registration = Registration { id, session, scope: asked.scope, kinds: asked.kinds.clone() };
        turn.volatile.workers.register(connection, registration);
        turn.emit(Event::GeneratorRegistered { id, session, kinds: asked.kinds, process });
        Ok(Response::Registered(Registered { generator: id, session, lease_ms }))
    };
    daemon.engine.turn(register).await?
}

/// Claims messages, waiting for the first one. Answers with an empty list once the wait is over. The host of a worker
/// gets the empty answer later if a message for it waits for a free handler.
pub(super) async fn claim(daemon: &Arc<Daemon>, caller: &Caller, op: Option<OpId>, asked: Claim) -> Reply {
    pool::worker::configure::check_kinds(&asked.kinds)?;
    if asked.max == 0 || asked.max > CLAIM_MAX {
        return Err(Refusal::usage(format!("a claim is for 1 to {CLAIM_MAX} messages")));
    }
    let (wanted, connection, process) = (asked.scope.clone(), caller.connection, caller.process);
    let begin = move |turn: &mut Turn<'_>| {
        pool::worker::check_scope(turn.pool(), &wanted)?;
        let waits_for = match (&wanted, pool::worker::listed_under(turn.pool(), &wanted)) {
            (ClaimScope::Sessions(_), Some(session)) => WaitsFor::Session(session),
            _ => WaitsFor::Everything,
        };
        let asking = turn.volatile.workers.begin_request(connection);
        Ok((waits_for, asking))
    };
    // Held while this claim waits: the worker counts as asking.
    let (waits_for, _asking) = daemon.engine.turn(begin).await??;
    let default = protocol::time::millis(daemon.loaded().settings.queue.lease);
    let lease_ms = asked.lease_ms.unwrap_or(default);
    let wait = Duration::from_millis(asked.wait_ms).min(WAIT_MAX);
    let context = Arc::clone(daemon);
    let request = Arc::new(ClaimRequest { daemon: context, connection, process, op, lease_ms, asked });
    if let Some(process) = process {
        // The receiver lives as long as the daemon.
        daemon.holders_to_watch.send(process).ok();
    }
    let (claiming, is_host) = (Arc::clone(&request), matches!(request.asked.scope, ClaimScope::Host(_)));
    let mut claims = daemon.engine.wait_with(waits_for, Some(wait), move |turn| claiming.claim(turn)).await;
    if is_host && !wait.is_zero() && claims.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Timeout)
    {
        let longer = WAIT_MAX.saturating_sub(wait);
        claims = daemon.engine.wait_with(waits_for, Some(longer), move |turn| request.claim_late(turn)).await;
    }
    let reply = match claims {
        Err(refusal) if refusal.code == ErrorCode::Timeout => Ok(Response::Claimed(Vec::new())),
        Err(refusal) => Err(refusal),
        Ok(claims) => claims.map(|claims| Response::Claimed(claims.into_inner())),
    };
    crate::crash::point("claim-given");
    reply
}

/// A claim that waits for messages.
struct ClaimRequest {
    daemon: Arc<Daemon>,
    connection: u64,
    process: Option<ProcId>,
    op: Option<OpId>,
    lease_ms: u64,
    asked: Claim,
}

impl ClaimRequest {
    /// Claims what is there now; none if nothing is.
    fn claim(&self, turn: &mut Turn<'_>) -> Option<Result<UnsentClaims, Refusal>> {
        let now = turn.now();
        if !turn.volatile.workers.seen(self.connection, now) {
            return Some(Err(Refusal::unavailable("the connection has ended")));
        }
        if let Err(refusal) = pool::worker::check_scope(turn.pool(), &self.asked.scope) {
            return Some(Err(refusal));
        }
        let repeated = self.held_by_operation(turn);
        let ids = if repeated.is_empty() { self.claim_new(turn) } else { repeated };
        if ids.is_empty() {
            return None;
        }
        let claimed: Result<Vec<Claimed>, Refusal> =
            ids.into_iter().filter_map(|id| self.claimed(turn, id)).collect();
        Some(claimed.map(|claimed| self.unsent(claimed)))
    }

    fn unsent(&self, claimed: Vec<Claimed>) -> UnsentClaims {
        UnsentClaims { claimed, engine: self.daemon.engine.clone(), settings: self.daemon.settings() }
    }

    /// Returns a claimed message with its body.
    fn claimed(&self, turn: &Turn<'_>, id: MessageId) -> Option<Result<Claimed, Refusal>> {
        let found = message(turn, id).transpose()?;
        let max_attempts = self.daemon.loaded().settings.queue.max_attempts;
        Some(found.map(|(message, body)| {
            let message = Message { steps: Vec::new(), max_attempts, ..message };
            Claimed { message, body: OsBytes(body) }
        }))
    }

    /// Claims as [`Self::claim`] once the wait is over. The host of a worker goes on waiting while a message for it
    /// lacks only a free handler: an answer without messages would let the host end.
    fn claim_late(&self, turn: &mut Turn<'_>) -> Option<Result<UnsentClaims, Refusal>> {
        let claims = self.claim(turn);
        let waits_on = claims.is_none() && worker::waits_for_host(turn.pool(), &self.asked.scope, turn.now());
        if waits_on { None } else { Some(claims.unwrap_or_else(|| Ok(self.unsent(Vec::new())))) }
    }

    /// Returns the messages that an earlier attempt of the same operation claimed, with their leases renewed.
    fn held_by_operation(&self, turn: &mut Turn<'_>) -> Vec<MessageId> {
        let Some(op) = &self.op else { return Vec::new() };
        let same = |holder: &Holder| holder.op.as_ref() == Some(op);
        let held = turn
            .pool()
            .held_messages()
            .filter(|open| open.state == MessageState::Claimed && open.holder.is_some_and(same));
        let held: Vec<(MessageId, Holder)> =
            held.filter_map(|open| Some((open.id, open.holder?.clone()))).collect();
        let mono = turn.mono();
        for (id, holder) in &held {
            turn.volatile.workers.renew(*id, holder, self.connection, mono);
        }
        held.into_iter().map(|(id, _)| id).collect()
    }

    /// Claims new messages, and records their claims.
    fn claim_new(&self, turn: &mut Turn<'_>) -> Vec<MessageId> {
        if turn.volatile.is_stopping() {
            return Vec::new();
        }
        let now = turn.now();
        if expire(turn) {
            return Vec::new();
        }
        let ids = worker::serve(turn, &self.daemon.settings(), self.connection, &self.asked);
        let generator = turn.volatile.workers.get(self.connection).and_then(|w| Some(w.registration()?.id));
        let claimed = ids.into_iter().filter(|of| self.claim_one(turn, *of, (generator, now)));
        claimed.map(|(_, id)| id).collect()
    }

    /// Records the claim on a message. Returns false if its body is not readable: the message is dead then.
    fn claim_one(
        &self,
        turn: &mut Turn<'_>,
        (session, id): (SessionId, MessageId),
        (generator, now): (Option<GeneratorId>, Timestamp),
    ) -> bool {
        let has_body = matches!(turn.message(id), Ok(Some(_)));
        let token = turn.volatile.locks.issue_token();
        let Some(open) = turn.pool().pending_message(session, id) else { return false };
        if !has_body {
            // Recorded, so that it does not block the messages behind it.
            let event = queue::transition(&open, MessageState::Dead, Some(MessageReason::Unreadable), now);
            turn.emit(event);
            return false;
        }
        let host = match self.asked.scope {
            ClaimScope::Host(tag) => Some(tag),
            ClaimScope::Sessions(_) => None,
        };
        let (process, lease_ms, op) = (self.process, self.lease_ms, self.op.clone());
        let holder = Holder { generator, process, lease_ms, op, host };
        let event = queue::claimed(&open, token, holder.clone(), now);
        turn.emit(event);
        let mono = turn.mono();
        turn.volatile.workers.renew(id, &holder, self.connection, mono);
        true
    }
}

/// Claims that are not sent to the worker yet. Dropped unsent, they are given back, and do not count as
/// attempts.
struct UnsentClaims {
    claimed: Vec<Claimed>,
    engine: EngineHandle,
    settings: Arc<Settings>,
}

impl UnsentClaims {
    /// Returns the claims to be sent.
    fn into_inner(mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.claimed)
    }
}

impl Drop for UnsentClaims {
    fn drop(&mut self) {
        let token = |claimed: &Claimed| Some((claimed.message.id, claimed.message.status.token?));
        let held: Vec<ClaimRef> =
            self.claimed.iter().filter_map(token).map(|(id, token)| ClaimRef { id, token }).collect();
        if held.is_empty() {
            return;
        }
        let settings = Arc::clone(&self.settings);
        self.engine.post(move |turn| {
            for held in held {
                let rules = &settings.queue;
                let back = ("the worker had disconnected", Disposition::GiveBack);
                // The same operation may have settled it already, over another connection.
                let events = queue::fail(turn.pool(), rules, held, back, turn.now()).unwrap_or_default();
                turn.emit_all(events);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::{queue_message, session, settings, start};

    /// Queues a message of this kind, and claims it.
    fn claim(turn: &mut Turn<'_>, to: SessionId, kind: &str) -> Claimed {
        let id = queue_message(turn, to, (kind, "text"));
        let holder = Holder { generator: None, process: None, lease_ms: 60_000, op: None, host: None };
        let token = turn.volatile.locks.issue_token();
        let open = turn.pool().pending_message(to, id).unwrap();
        let claimed = queue::claimed(&open, token, holder, turn.now());
        turn.emit(claimed);
        let (message, body) = turn.message(id).unwrap().unwrap();
        Claimed { message, body: OsBytes(body) }
    }

    #[tokio::test]
    async fn claims_that_reach_no_worker_are_given_back_and_count_as_no_attempts() {
        for (count, is_sent) in [(1, false), (2, false), (2, true)] {
            let engine = start();
            let claims = move |turn: &mut Turn<'_>| {
                let to = session(turn, "a");
                (0..count).map(|n| claim(turn, to, &format!("kind{n}"))).collect::<Vec<_>>()
            };
            let claimed = engine.turn(claims).await.unwrap();
            let ids: Vec<MessageId> = claimed.iter().map(|claimed| claimed.message.id).collect();
            let unsent = UnsentClaims { claimed, engine: engine.clone(), settings: Arc::new(settings()) };
            if is_sent {
                drop(unsent.into_inner());
            } else {
                drop(unsent);
            }
            let read = move |turn: &mut Turn<'_>| {
                let state = |id: &MessageId| {
                    let open = turn.pool().find_pending(*id).unwrap();
                    (open.state, open.attempts)
                };
                ids.iter().map(state).collect::<Vec<_>>()
            };
            let expected = if is_sent { (MessageState::Claimed, 1) } else { (MessageState::Queued, 0) };
            assert_eq!(engine.turn(read).await.unwrap(), vec![expected; count], "{count} {is_sent}");
        }
    }
}
