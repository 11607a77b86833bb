//! `claim`: messages for whoever works them, as soon as there are some; and who works what.

use crate::decide::queue::message;
use crate::sense::quiet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pool::queue;
use pool::queue::Asked;
use pool::worker::Registration;
use protocol::ids::GeneratorId;
use protocol::reply::{ClaimView, GeneratorView, Registered};
use protocol::request::{CLAIM_MAX, Claim, ClaimRef, Disposition, Register};
use protocol::{
    Claimed, ErrorCode, Event, Holder, Lifecycle, MessageId, MessageState, OpId, OsBytes, ProcId, Refusal,
    Reply, Response, SessionId, Timestamp,
};

use crate::engine::Turn;
use crate::engine::context::Daemon;

/// Bytes of bodies that go with one answer; one body goes whatever its size.
const BYTES_MAX: usize = 512 * 1024;

/// The longest that a claim waits.
const WAIT_MAX: Duration = Duration::from_secs(600);

/// The shortest and the longest lease.
const LEASE: std::ops::RangeInclusive<u64> = 1_000..=24 * 3600 * 1000;

/// Who claims.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer {
    pub(crate) connection: u64,
    pub(crate) process: Option<ProcId>,
}

/// Registers a generator, once a connection.
pub(crate) async fn register(daemon: &Arc<Daemon>, peer: Peer, asked: Register) -> Reply {
    asked.kinds.iter().try_for_each(|kind| pool::admit::kind(kind))?;
    let lease_ms = protocol::time::millis(daemon.loaded().settings.queue.lease);
    if peer.process.is_none() {
        let why =
            "a generator is ended before its messages go to another, and its process cannot be identified";
        return Err(Refusal::new(ErrorCode::Unavailable, why));
    }
    let take = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?.id;
        let id = GeneratorId(turn.next_seq().0);
        let Some(worker) = turn.volatile.workers.get_mut(peer.connection) else {
            return Err(Refusal::new(ErrorCode::Unavailable, "the connection has ended"));
        };
        if worker.registration.is_some() {
            return Err(Refusal::new(ErrorCode::Usage, "a connection registers once"));
        }
        worker.registration = Some(Registration { id, session, kinds: asked.kinds.clone() });
        turn.emit(Event::GeneratorRegistered { id, session, kinds: asked.kinds, process: peer.process });
        Ok(Response::Registered(Registered { generator: id, session, lease_ms }))
    };
    daemon.engine.turn(take).await?
}

/// Gives out what there is, or waits for it.
pub(crate) async fn claim(daemon: &Arc<Daemon>, peer: Peer, op: Option<OpId>, asked: Claim) -> Reply {
    asked.kinds.iter().try_for_each(|kind| pool::admit::kind(kind))?;
    if asked.max == 0 || asked.max > CLAIM_MAX {
        return Err(Refusal::new(ErrorCode::Usage, format!("a claim is for 1 to {CLAIM_MAX} messages")));
    }
    let wanted = asked.session.clone();
    let begin = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.id;
        let asking = turn.volatile.workers.get_mut(peer.connection).map(|worker| Arc::clone(&worker.asking));
        Ok((session, asking))
    };
    // Kept for as long as it waits.
    let (session, _asking) = daemon.engine.turn(begin).await??;
    let default = protocol::time::millis(daemon.loaded().settings.queue.lease);
    let lease_ms = asked.lease_ms.unwrap_or(default).clamp(*LEASE.start(), *LEASE.end());
    let wait = Duration::from_millis(asked.wait_ms).min(WAIT_MAX);
    let claiming = Claiming { daemon: Arc::clone(daemon), peer, op, session, lease_ms, asked };
    if let Some(process) = peer.process {
        // Dropped only with the daemon.
        daemon.holders.send(process).ok();
    }
    match daemon.engine.wait_on(session, Some(wait), move |turn| claiming.look(turn)).await {
        Err(refusal) if refusal.code == ErrorCode::Timeout => Ok(Response::Claimed(Vec::new())),
        Err(refusal) => Err(refusal),
        Ok(offer) => offer.map(|offer| Response::Claimed(offer.take())),
    }
}

struct Claiming {
    daemon: Arc<Daemon>,
    peer: Peer,
    op: Option<OpId>,
    session: SessionId,
    lease_ms: u64,
    asked: Claim,
}

impl Claiming {
    fn look(&self, turn: &mut Turn<'_>) -> Option<Result<Offer, Refusal>> {
        let now = turn.now();
        let Some(worker) = turn.volatile.workers.get_mut(self.peer.connection) else {
            return Some(Err(Refusal::new(ErrorCode::Unavailable, "the connection has ended")));
        };
        worker.heard_at = now;
        if turn.pool().session(self.session).is_none() {
            return Some(Err(pool::admit::not_found(turn.pool(), &self.session.to_string())));
        }
        let repeated = self.repeated(turn);
        let given = if repeated.is_empty() { self.give(turn) } else { repeated };
        if given.is_empty() {
            return None;
        }
        let claimed: Result<Vec<Claimed>, Refusal> =
            given.into_iter().filter_map(|id| claimed(turn, id)).collect();
        Some(claimed.map(|claimed| Offer { claimed, daemon: Arc::clone(&self.daemon) }))
    }

    /// What the same operation was given before.
    fn repeated(&self, turn: &mut Turn<'_>) -> Vec<MessageId> {
        let Some(op) = &self.op else { return Vec::new() };
        let same = |holder: &Holder| holder.op.as_ref() == Some(op);
        let held = turn.pool().held_messages().filter(|open| {
            open.session == self.session
                && open.state == MessageState::Claimed
                && open.holder.is_some_and(same)
        });
        let held: Vec<(MessageId, Holder)> =
            held.filter_map(|open| Some((open.id, open.holder?.clone()))).collect();
        let mono = turn.mono();
        for (id, holder) in &held {
            turn.volatile.workers.renew(*id, holder, self.peer.connection, mono);
        }
        held.into_iter().map(|(id, _)| id).collect()
    }

    fn give(&self, turn: &mut Turn<'_>) -> Vec<MessageId> {
        if turn.volatile.is_stopping() {
            return Vec::new();
        }
        let now = turn.now();
        let expired = queue::expired(turn.pool(), now);
        turn.emit_all(expired);
        let asked = Asked { session: self.session, kinds: &self.asked.kinds, max: self.asked.max as usize };
        let mut bytes = 0;
        let open = queue::claimable(turn.pool(), asked, now);
        let fits = |size: u32| {
            let first = bytes == 0;
            bytes += size as usize;
            first || bytes <= BYTES_MAX
        };
        let mut fits = fits;
        let ids: Vec<MessageId> =
            open.iter().take_while(|open| fits(open.size)).map(|open| open.id).collect();
        let generator = turn
            .volatile
            .workers
            .get_mut(self.peer.connection)
            .and_then(|w| Some(w.registration.as_ref()?.id));
        ids.into_iter().filter(|id| self.give_one(turn, *id, (generator, now))).collect()
    }

    fn give_one(
        &self,
        turn: &mut Turn<'_>,
        id: MessageId,
        (generator, now): (Option<GeneratorId>, Timestamp),
    ) -> bool {
        let body_is_there = matches!(turn.message(id), Ok(Some(_)));
        let token = turn.volatile.locks.issue();
        let Some(open) = turn.pool().open_message(self.session, id) else { return false };
        if !body_is_there {
            // Said, and no other message waits behind it for ever.
            let event = queue::moved(&open, MessageState::Dead, Some("its record is not readable"), now);
            turn.emit(event);
            return false;
        }
        let holder =
            Holder { generator, process: self.peer.process, lease_ms: self.lease_ms, op: self.op.clone() };
        let event = queue::given(&open, token, holder.clone(), now);
        turn.emit(event);
        let mono = turn.mono();
        turn.volatile.workers.renew(id, &holder, self.peer.connection, mono);
        true
    }
}

/// What was given out and may not have reached anybody: where it has not, it is given back, and it was no
/// attempt.
struct Offer {
    claimed: Vec<Claimed>,
    daemon: Arc<Daemon>,
}

impl Offer {
    /// It is on its way.
    fn take(mut self) -> Vec<Claimed> {
        std::mem::take(&mut self.claimed)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        let token = |claimed: &Claimed| Some((claimed.message.id, claimed.message.status.token?));
        let held: Vec<ClaimRef> =
            self.claimed.iter().filter_map(token).map(|(id, token)| ClaimRef { id, token }).collect();
        if held.is_empty() {
            return;
        }
        let context = Arc::clone(&self.daemon);
        self.daemon.engine.post(move |turn| {
            for held in held {
                let rules = &context.loaded().settings.queue;
                let back = ("whoever asked for it had left", Disposition::GiveBack);
                // It may be settled already, by the same operation over another connection.
                let events = queue::fail(turn.pool(), rules, held, back, turn.now()).unwrap_or_default();
                turn.emit_all(events);
            }
        });
    }
}

fn claimed(turn: &Turn<'_>, id: MessageId) -> Option<Result<Claimed, Refusal>> {
    let found = message(turn, id).transpose()?;
    Some(found.map(|(mut message, body)| {
        message.steps = Vec::new();
        Claimed { message, body: OsBytes(body) }
    }))
}

/// `generators`: workers, the agents of sessions, and clients that hold something.
pub(super) async fn generators(daemon: &Arc<Daemon>) -> Reply {
    quiet::refresh(daemon).await?;
    let read = move |turn: &mut Turn<'_>| {
        Ok(Response::Generators(list(turn, turn.volatile.scheduler.quiet_since())))
    };
    daemon.engine.turn(read).await?
}

/// `wrote`: when programs last wrote something.
fn list(turn: &Turn<'_>, wrote: &BTreeMap<SessionId, Timestamp>) -> Vec<GeneratorView> {
    let name = |id: SessionId| turn.pool().session(id).map(|session| session.name.clone());
    let mut all = Vec::new();
    for session in turn.pool().sessions().filter(|s| s.lifecycle == Lifecycle::Live) {
        let run = session.incarnation.as_ref();
        all.push(GeneratorView {
            id: None,
            generation: u64::from(session.incarnations),
            session: session.id,
            name: session.name.clone(),
            role: "agent".to_owned(),
            kinds: vec![protocol::message::PROMPT.to_owned()],
            process: run.and_then(|run| run.agent.or(run.init)),
            since: session.changed_at,
            last_activity_at: wrote
                .get(&session.id)
                .map_or(session.last_activity_at, |at| session.last_activity_at.max(*at)),
            holds: holds(turn, session.id, |open| open.kind == protocol::message::PROMPT),
        });
    }
    for (connection, worker) in turn.volatile.workers.iter() {
        let registered = worker.registration.as_ref();
        // A generator may be heard of over another connection than its own.
        let its = |open: &queue::Open<'_>| match (registered, open.holder.and_then(|holder| holder.generator))
        {
            (Some(registered), generator) => generator == Some(registered.id),
            (None, Some(_)) => false,
            (None, None) => turn.volatile.workers.connection_of(open.id) == Some(connection),
        };
        let held: Vec<SessionId> =
            turn.pool().held_messages().filter(|open| its(open)).map(|open| open.session).collect();
        let Some(session) = registered.map(|r| r.session).or(held.first().copied()) else { continue };
        let Some(name) = name(session) else { continue };
        all.push(GeneratorView {
            id: registered.map(|r| r.id),
            generation: registered.map_or(connection, |r| r.id.0),
            session,
            name,
            role: if registered.is_some() { "worker" } else { "client" }.to_owned(),
            kinds: registered.map(|r| r.kinds.clone()).unwrap_or_default(),
            process: worker.process,
            since: worker.since,
            last_activity_at: worker.heard_at,
            holds: holds(turn, session, its),
        });
    }
    all
}

fn holds(turn: &Turn<'_>, session: SessionId, its: impl Fn(&queue::Open<'_>) -> bool) -> Vec<ClaimView> {
    let held = turn.pool().held_messages().filter(|open| open.session == session && its(open));
    let view = |open: queue::Open<'_>| {
        let left = turn.volatile.workers.deadline(open.id).map(|at| turn.mono().until(at));
        Some(ClaimView {
            held: ClaimRef { id: open.id, token: open.token? },
            kind: open.kind.to_owned(),
            deadline_at: left.map(|left| turn.now().after(left)),
        })
    };
    held.filter_map(view).collect()
}
