//! Queues within one turn: `send`, heartbeats, settling, administration.

use agents::Adapter;
use pool::admit::{Body, Earlier, Sending, Sent};
use pool::{admit, queue};
use protocol::message::PROMPT;
use protocol::request::{Ack, ClaimRef, Fail, ResolveMessage, Send};
use protocol::{
    ErrorCode, Event, Message, MessageId, MessageState, OpId, Refusal, Reply, Request, Response, Seq,
    Session, Token, reply,
};
use store::StoreError;

use crate::decide::idempotency::{Op, reused};
use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::context::{Daemon, Loaded};
use crate::engine::handle::in_doubt;
use crate::host::digest::digest;

/// A message that could not be read.
fn unreadable(error: &StoreError) -> Refusal {
    match error {
        StoreError::Record { .. } => {
            Refusal::new(ErrorCode::Storage, format!("{error}; `poolctl check` tells more"))
        }
        _ => in_doubt(),
    }
}

/// A message as it is now, with its body.
pub(crate) fn message(turn: &Turn<'_>, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, Refusal> {
    turn.message(id).map_err(|error| unreadable(&error))
}

/// The answer that shows a message.
pub(crate) fn shown(turn: &Turn<'_>, id: MessageId) -> Reply {
    let (message, _) = message(turn, id)?.ok_or_else(|| absent(id))?;
    Ok(Response::Message(Box::new(Message { steps: Vec::new(), ..message })))
}

/// The same with what became of it until now.
pub(crate) fn shown_with_steps(turn: &Turn<'_>, id: MessageId) -> Reply {
    let (message, _) = message(turn, id)?.ok_or_else(|| absent(id))?;
    Ok(Response::Message(Box::new(message)))
}

pub(crate) fn absent(id: MessageId) -> Refusal {
    Refusal::new(ErrorCode::NotFound, format!("no message {id}"))
}

/// The text as it is stored: a prompt as it will be typed, anything else byte for byte.
pub(crate) fn body(asked: &mut Send) -> Result<Body, Refusal> {
    let bytes = std::mem::take(&mut asked.body.0);
    if asked.kind != PROMPT {
        return Ok(Body { digest: digest(&bytes), bytes });
    }
    let text =
        String::from_utf8(bytes).map_err(|_| Refusal::new(ErrorCode::Usage, "the text is not UTF-8"))?;
    let bytes = queue::printable(&text).into_bytes();
    // The same text as it is and defused are two.
    Ok(Body { digest: digest(&bytes) ^ u64::from(asked.raw), bytes })
}

/// The text as it will be typed: what the session's agent would take for a command, or complete, is defused.
///
/// # Errors
/// Usage, where nothing of it would arrive.
fn defused(daemon: &Daemon, session: &Session, asked: &Send, body: Body) -> Result<Body, Refusal> {
    let adapter = daemon.loaded().settings.agent_of(session).adapter;
    if asked.kind != PROMPT || adapter == Adapter::None {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body.bytes);
    if agents::prompt::is_blank(&text) {
        return Err(Refusal::new(ErrorCode::Usage, "the text is blank: an agent takes nothing from it"));
    }
    if asked.raw {
        return Ok(body);
    }
    let bytes = agents::prompt::escape(adapter, &text).into_bytes();
    Ok(Body { bytes, ..body })
}

/// `send`: one turn, one commit, one row.
pub(crate) fn send(turn: &mut Turn<'_>, daemon: &Daemon, op: &OpId, (asked, body): (&Send, Body)) -> Reply {
    if let Some(earlier) = turn.pool().sent_by(op)
        && let Some((message, _)) =
            message(turn, earlier)?.filter(|(message, _)| message.op.as_ref() == Some(op))
    {
        // A name that is nobody's any more may have been its session's.
        let meant = admit::resolve(turn.pool(), &asked.session);
        let elsewhere = meant.is_ok_and(|session| session.id != message.session);
        let repeats = !elsewhere && is_repeat(&message, asked, &body);
        return if repeats { sent(turn, message) } else { Err(reused()) };
    }
    if turn.pool().operation(op).is_some() || turn.waiting.operations.contains_key(op) {
        return Err(reused());
    }
    let loaded = daemon.loaded();
    let session = admit::resolve(turn.pool(), &asked.session)?.clone();
    let keyed = asked.key.as_ref().and_then(|key| turn.pool().keyed(session.id, key));
    let (keyed, cause) = (read(turn, keyed)?, read(turn, asked.cause)?);
    let body = defused(daemon, &session, asked, body)?;
    let sending = Sending { session: &session, send: asked, body: &body, op };
    let earlier = Earlier { keyed: keyed.as_ref(), cause: cause.as_ref() };
    let place = (turn.next_seq(), turn.now());
    match admit::send(turn.pool(), &loaded.settings.queue, sending, earlier, place)? {
        Sent::Existing(_) => keyed.ok_or_else(in_doubt).and_then(|first| sent(turn, first)),
        Sent::Queued(message) => {
            has_disk(daemon, &loaded, body.bytes.len() as u64)?;
            let id = message.id;
            turn.emit(Event::MessageQueued(message.clone()));
            if asked.wake {
                let woken = turn.pool().session(session.id).and_then(|s| pool::budget::woken(s, turn.now()));
                turn.emit_all(woken);
            }
            turn.keep_body(id, body.bytes);
            sent(turn, *message)
        }
    }
}

fn read(turn: &Turn<'_>, id: Option<MessageId>) -> Result<Option<Message>, Refusal> {
    let Some(id) = id else { return Ok(None) };
    Ok(message(turn, id)?.map(|(message, _)| message))
}

/// The first message of a session, which may be decided in the same turn: the operation is that of its creation.
/// `seq` is where it will stand in the journal.
///
/// # Errors
/// As `send`.
pub(crate) fn first(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    (send, body): (&Send, &Body),
    seq: Seq,
) -> Result<Option<(Message, Vec<u8>)>, Refusal> {
    let body = &defused(daemon, session, send, body.clone())?;
    let loaded = daemon.loaded();
    // It has none of its own.
    let op = &OpId::Random([0; 16]);
    let send = &Send { wake: true, ..send.clone() };
    let sending = Sending { session, send, body, op };
    let place = (seq, turn.now());
    let sent = admit::send(turn.pool(), &loaded.settings.queue, sending, Earlier::default(), place)?;
    has_disk(daemon, &loaded, body.bytes.len() as u64)?;
    Ok(match sent {
        Sent::Queued(message) => Some((Message { op: None, ..*message }, body.bytes.clone())),
        Sent::Existing(_) => None,
    })
}

/// Queues what was decided.
pub(crate) fn queue_first(turn: &mut Turn<'_>, (message, body): (Message, Vec<u8>)) {
    let id = message.id;
    turn.emit(Event::MessageQueued(Box::new(message)));
    turn.keep_body(id, body);
}

/// Whether a repeat of an operation asks for the same.
fn is_repeat(first: &Message, asked: &Send, body: &Body) -> bool {
    let ttl = first.expires_at.map(|at| protocol::time::millis(at.since(first.created_at)));
    first.digest == body.digest
        && first.kind == asked.kind
        && first.key == asked.key
        && first.origin == asked.origin
        && (first.enter, first.priority, first.cause) == (asked.enter, asked.priority, asked.cause)
        && ttl == asked.ttl_ms
}

fn sent(turn: &Turn<'_>, mut message: Message) -> Reply {
    message.steps = Vec::new();
    let breaker = turn.pool().breaker(message.session, &message.kind).filter(|breaker| breaker.is_open());
    let held_back = breaker.cloned();
    Ok(Response::Sent(Box::new(reply::Sent { message, held_back })))
}

/// Refuses new messages before the disk is full.
fn has_disk(daemon: &Daemon, loaded: &Loaded, more: u64) -> Result<(), Refusal> {
    let least = loaded.min_free_disk;
    match daemon.disk.take(more) {
        Some(free) if free < least.saturating_add(more) => {
            let (free, least) = (free >> 20, least >> 20);
            let why = format!(
                "the disk of {} has {free} MiB left, and [queue] min_free_disk keeps {least}: make room there",
                daemon.paths.state.display()
            );
            Err(Refusal::new(ErrorCode::Refused, why))
        }
        _ => Ok(()),
    }
}

/// What is sent under a user's lock is delivered inside of it, with what waits before it.
///
/// # Errors
/// As [`send`], and conflict, where that lock is not held any more.
pub(crate) fn send_under(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    (op, lock): (&OpId, Option<Token>),
    (asked, body): (&Send, Body),
) -> Reply {
    if lock.is_some_and(|token| !turn.volatile.locks.is_held(token)) {
        return Err(lock::stale());
    }
    let sent = send(turn, daemon, op, (asked, body))?;
    if let Response::Sent(accepted) = &sent {
        lock::fed(turn, accepted.message.session, lock);
    }
    Ok(sent)
}

/// Still at work: leases begin anew. All or none.
pub(crate) fn heartbeat(turn: &mut Turn<'_>, connection: u64, held: &[ClaimRef]) -> Reply {
    let now = turn.now();
    if let Some(worker) = turn.volatile.workers.get_mut(connection) {
        worker.heard_at = now;
    }
    let mono = turn.mono();
    let mut kept = Vec::with_capacity(held.len());
    let mut stale = Vec::new();
    for one in held {
        let open = turn.pool().find_held(one.id);
        let current =
            open.filter(|open| open.state == MessageState::Claimed && open.token == Some(one.token));
        match current.and_then(|open| open.holder) {
            Some(holder) => kept.push((one.id, holder.clone())),
            None => stale.push(one.id.to_string()),
        }
    }
    for (id, holder) in kept {
        turn.volatile.workers.renew(id, &holder, connection, mono);
    }
    if stale.is_empty() {
        return Ok(Response::Done);
    }
    let why = format!("no longer held under these tokens: {}", stale.join(", "));
    Err(Refusal::new(ErrorCode::Conflict, why))
}

/// `ack`. A repeat gets the same answer.
pub(crate) fn ack(turn: &mut Turn<'_>, asked: Ack) -> Reply {
    let held = asked.held;
    match queue::ack(turn.pool(), held, asked.result, turn.now()) {
        Ok(events) => turn.emit_all(events),
        Err(refusal) => settled_before(turn, held, refusal, |state| state == MessageState::Done)?,
    }
    shown(turn, held.id)
}

/// `fail`. A repeat gets the same answer.
pub(crate) fn fail(turn: &mut Turn<'_>, daemon: &Daemon, asked: &Fail) -> Reply {
    let (held, rules) = (asked.held, &daemon.loaded().settings.queue);
    match queue::fail(turn.pool(), rules, held, (&asked.reason, asked.then), turn.now()) {
        Ok(events) => turn.emit_all(events),
        Err(refusal) => {
            let over = |state| matches!(state, MessageState::Queued | MessageState::Dead);
            settled_before(turn, held, refusal, over)?;
        }
    }
    shown(turn, held.id)
}

/// Whether the same token settled it so before.
fn settled_before(
    turn: &Turn<'_>,
    held: ClaimRef,
    refusal: Refusal,
    so: impl Fn(MessageState) -> bool,
) -> Result<(), Refusal> {
    if refusal.code != ErrorCode::Conflict {
        return Err(refusal);
    }
    let status = message(turn, held.id)?.map(|(message, _)| message.status);
    let before = status.is_some_and(|status| status.token == Some(held.token) && so(status.state));
    if before { Ok(()) } else { Err(refusal) }
}

/// `queue resolve`, `cancel`, `retry`, as operations.
pub(crate) fn administrate(turn: &mut Turn<'_>, daemon: &Daemon, op: &Op, request: &Request) -> Reply {
    let now = turn.now();
    let reply = match request {
        Request::ResolveMessage(ResolveMessage { id, .. }) | Request::Cancel(id) | Request::Retry(id) => {
            let events = match request {
                Request::ResolveMessage(asked) => admit::resolve_message(turn.pool(), asked, now)?,
                Request::Cancel(id) => admit::cancel(turn.pool(), *id, now)?,
                _ => admit::retry(turn.pool(), &daemon.loaded().settings.queue, *id, now)?,
            };
            turn.emit_all(events);
            shown(turn, *id)
        }
        _ => Err(Refusal::new(ErrorCode::Usage, "not an operation")),
    };
    // Prompts may go on now, and whoever waited for a message.
    turn.wake();
    op.conclude(turn, &reply);
    reply
}
