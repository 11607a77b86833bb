//! Queues within one turn: `send`, heartbeats, `ack` and `fail`.

use std::path::Path;

use agents::Adapter;
use pool::queue::{Body, EarlierMessages, SendInputs, SendOutcome};
use pool::{queue, session, worker};
use protocol::request::{Ack, ClaimRef, Fail, Send};
use protocol::{
    ErrorCode, Message, MessageId, MessageState, OpId, PROMPT, Refusal, Reply, Response, Seq, Session,
    Timestamp, Token, digest, reply,
};
use store::StoreError;

use crate::decide::idempotency::{self, id_reused};
use crate::decide::lock;
use crate::engine::{Daemon, LoadedConfig, Turn, in_doubt};

/// Returns the refusal for a message that could not be read.
fn unreadable(error: &StoreError) -> Refusal {
    match error {
        StoreError::Record { .. } => Refusal::storage(format!("{error}; `poolctl check` tells more")),
        _ => in_doubt(),
    }
}

/// Returns a message with its body, including the changes of this turn.
pub(crate) fn message(turn: &Turn<'_>, id: MessageId) -> Result<Option<(Message, Vec<u8>)>, Refusal> {
    turn.message(id).map_err(|error| unreadable(&error))
}

/// Returns the end of the lease of a message's claim, while one runs.
pub(crate) fn deadline_at(turn: &Turn<'_>, id: MessageId) -> Option<Timestamp> {
    let left = turn.volatile.workers.deadline(id).map(|at| turn.mono().until(at));
    left.map(|left| turn.now().after(left))
}

/// Returns the reply that shows a message, without its steps.
pub(crate) fn shown(turn: &Turn<'_>, id: MessageId) -> Reply {
    let (message, _) = message(turn, id)?.ok_or_else(|| no_such_message(id))?;
    Ok(Response::Message(Box::new(Message { steps: Vec::new(), ..message })))
}

/// Returns the reply that shows a message with its steps.
pub(crate) fn shown_with_steps(turn: &Turn<'_>, id: MessageId) -> Reply {
    let (message, _) = message(turn, id)?.ok_or_else(|| no_such_message(id))?;
    Ok(Response::Message(Box::new(message)))
}

pub(crate) fn no_such_message(id: MessageId) -> Refusal {
    Refusal::not_found(format!("no message {id}"))
}

/// Returns the body as it is stored: a prompt as it will be typed, anything else byte for byte.
pub(crate) fn body(asked: &mut Send) -> Result<Body, Refusal> {
    let bytes = std::mem::take(&mut asked.body.0);
    if asked.kind != PROMPT {
        return Ok(Body { digest: digest(&bytes), bytes });
    }
    let text = String::from_utf8(bytes).map_err(|_| Refusal::usage("the text is not UTF-8"))?;
    let bytes = queue::strip_controls(&text).into_bytes();
    // The same text, raw and escaped, is two different requests.
    Ok(Body { digest: digest(&bytes) ^ u64::from(asked.raw), bytes })
}

/// Returns the text as it will be typed: text that the session's agent would take for a command, or complete,
/// is escaped.
///
/// # Errors
/// Usage: the text is blank.
fn escaped(daemon: &Daemon, session: &Session, asked: &Send, body: Body) -> Result<Body, Refusal> {
    let adapter = daemon.loaded().settings.agent_of(session).adapter;
    if asked.kind != PROMPT || adapter == Adapter::None {
        return Ok(body);
    }
    let text = String::from_utf8_lossy(&body.bytes);
    if agents::prompt::is_blank(&text) {
        return Err(Refusal::usage("the text is blank: an agent takes nothing from it"));
    }
    if asked.raw {
        return Ok(body);
    }
    let bytes = agents::prompt::escape(adapter, &text).into_bytes();
    Ok(Body { bytes, ..body })
}

/// `send`: one turn, one commit, one row. A request under a user's lock needs that lock, but a repeat is answered even
/// after the lock has ended.
///
/// # Errors
/// Conflict: that lock is no longer held.
pub(crate) fn send(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    (op, lock): (&OpId, Option<Token>),
    (asked, body): (&Send, Body),
) -> Reply {
    if let Some(earlier) = turn.pool().message_by_operation(op)
        && let Some((message, _)) =
            message(turn, earlier)?.filter(|(message, _)| message.op.as_ref() == Some(op))
    {
        // The name in the repeat may have been that of the message's session, which has lost it since.
        let named = session::resolve(turn.pool(), &asked.session);
        let is_other_session = named.is_ok_and(|session| session.id != message.session);
        let repeats = !is_other_session && is_repeat(&message, asked, &body);
        return if repeats { sent(turn, message) } else { Err(id_reused()) };
    }
    if let Some(answer) = idempotency::used_for_sending(turn, op, body.digest) {
        return answer;
    }
    if lock.is_some_and(|token| !turn.volatile.locks.is_held(token)) {
        return Err(lock::not_held());
    }
    let loaded = daemon.loaded();
    let session = session::resolve(turn.pool(), &asked.session)?.clone();
    let keyed = asked.key.as_ref().and_then(|key| turn.pool().message_by_key(session.id, key));
    let (keyed, cause) = (read(turn, keyed)?, read(turn, asked.cause)?);
    let body = escaped(daemon, &session, asked, body)?;
    let sending = SendInputs { session: &session, send: asked, body: &body, op };
    let earlier = EarlierMessages { keyed: keyed.as_ref(), cause: cause.as_ref() };
    let place = (turn.next_seq(), turn.now());
    match queue::send(turn.pool(), &loaded.settings.queue, sending, earlier, place)? {
        SendOutcome::Existing(_) => keyed.ok_or_else(in_doubt).and_then(|first| sent(turn, first)),
        SendOutcome::Queued(message) => {
            check_disk(daemon, &loaded, body.bytes.len() as u64)?;
            let queued = queue::queued(turn.pool(), &message, asked.wake);
            turn.emit_all(queued);
            turn.keep_body(message.id, body.bytes);
            sent(turn, *message)
        }
    }
}

fn read(turn: &Turn<'_>, id: Option<MessageId>) -> Result<Option<Message>, Refusal> {
    let Some(id) = id else { return Ok(None) };
    Ok(message(turn, id)?.map(|(message, _)| message))
}

/// Decides on the first message of a session, which may be created in the same turn. Its operation is that of
/// the creation. `seq` is its number in the journal.
pub(crate) fn decide_first(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    (send, body): (&Send, &Body),
    seq: Seq,
) -> Result<Option<(Message, Vec<u8>)>, Refusal> {
    let body = &escaped(daemon, session, send, body.clone())?;
    let loaded = daemon.loaded();
    // This message has no operation id of its own.
    let op = &OpId::Random([0; 16]);
    let send = &Send { wake: true, ..send.clone() };
    let sending = SendInputs { session, send, body, op };
    let place = (seq, turn.now());
    let sent = queue::send(turn.pool(), &loaded.settings.queue, sending, EarlierMessages::default(), place)?;
    check_disk(daemon, &loaded, body.bytes.len() as u64)?;
    Ok(match sent {
        SendOutcome::Queued(message) => Some((Message { op: None, ..*message }, body.bytes.clone())),
        SendOutcome::Existing(_) => None,
    })
}

/// Queues a first message that was decided, perhaps under a user's lock on its session. It wakes an existing session.
pub(crate) fn queue_first(turn: &mut Turn<'_>, (message, body): (Message, Vec<u8>), under: Option<Token>) {
    let queued = queue::queued(turn.pool(), &message, true);
    turn.emit_all(queued);
    turn.keep_body(message.id, body);
    lock::mark_used_for_send(turn, &message, under);
}

/// True if a repeated operation asks for the same.
fn is_repeat(first: &Message, asked: &Send, body: &Body) -> bool {
    let ttl = first.expires_at.map(|at| protocol::time::millis(at.since(first.created_at)));
    first.digest == body.digest
        && first.kind == asked.kind
        && first.key == asked.key
        && first.origin == asked.origin
        && (first.enter, first.priority, first.cause) == (asked.enter, asked.priority, asked.cause)
        && (ttl, first.in_doubt) == (asked.ttl_ms, asked.in_doubt)
}

fn sent(turn: &Turn<'_>, mut message: Message) -> Reply {
    message.steps = Vec::new();
    let breaker = turn.pool().breaker(message.session, &message.kind).filter(|breaker| breaker.is_open());
    let held_back = breaker.cloned();
    Ok(Response::Sent(Box::new(reply::Sent { message, held_back })))
}

/// Refuses new messages before the disk is full.
fn check_disk(daemon: &Daemon, loaded: &LoadedConfig, more: u64) -> Result<(), Refusal> {
    let least = loaded.daemon.queue_min_free_disk;
    check_free(daemon.disk.reserve(more), (more, least), &daemon.paths.state)
}

/// Refuses `more` bytes on a disk with so many free ones, if fewer than `least` were left then.
fn check_free(free: Option<u64>, (more, least): (u64, u64), dir: &Path) -> Result<(), Refusal> {
    match free {
        Some(free) if free < least.saturating_add(more) => {
            let (free, least) = (free >> 20, least >> 20);
            let why = format!(
                "the disk of {} has {free} MiB left, and [queue] min_free_disk keeps {least}: make room there",
                dir.display()
            );
            Err(Refusal::refused(why))
        }
        _ => Ok(()),
    }
}

/// `send` under a user's lock: the message, and those before it, are delivered during the lock.
pub(crate) fn send_under(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    (op, lock): (&OpId, Option<Token>),
    (asked, body): (&Send, Body),
) -> Reply {
    let sent = send(turn, daemon, (op, lock), (asked, body))?;
    if let Response::Sent(accepted) = &sent {
        lock::mark_used_for_send(turn, &accepted.message, lock);
    }
    Ok(sent)
}

/// Renews the leases of claims.
///
/// # Errors
/// Conflict: some of them are no longer held; the others are renewed.
pub(crate) fn heartbeat(turn: &mut Turn<'_>, connection: u64, held: &[ClaimRef]) -> Reply {
    let lost: Vec<String> =
        worker::heartbeat(turn, connection, held).iter().map(MessageId::to_string).collect();
    if lost.is_empty() {
        return Ok(Response::Done);
    }
    let why = format!("no longer held under these tokens: {}", lost.join(", "));
    Err(Refusal::conflict(why))
}

/// `ack`. A repeat gets the same reply.
pub(crate) fn ack(turn: &mut Turn<'_>, asked: Ack) -> Reply {
    let held = asked.held;
    match queue::ack(turn.pool(), held, asked.result, turn.now()) {
        Ok(events) => turn.emit_all(events),
        Err(refusal) => settled_before(turn, held, refusal, |state| state == MessageState::Done)?,
    }
    shown(turn, held.id)
}

/// `fail`. A repeat gets the same reply.
pub(crate) fn fail(turn: &mut Turn<'_>, daemon: &Daemon, asked: &Fail) -> Reply {
    let (held, rules) = (asked.held, &daemon.loaded().settings.queue);
    match queue::fail(turn.pool(), rules, held, (&asked.reason, asked.then), turn.now()) {
        Ok(events) => turn.emit_all(events),
        Err(refusal) => {
            let is_result = |state| matches!(state, MessageState::Queued | MessageState::Dead);
            settled_before(turn, held, refusal, is_result)?;
        }
    }
    shown(turn, held.id)
}

/// Accepts a repeat: the same token settled the message in the same way before. Otherwise the worker is told that it
/// lost the claim.
fn settled_before(
    turn: &mut Turn<'_>,
    held: ClaimRef,
    refusal: Refusal,
    is_result: impl Fn(MessageState) -> bool,
) -> Result<(), Refusal> {
    if refusal.code != ErrorCode::Conflict {
        return Err(refusal);
    }
    let status = message(turn, held.id)?.map(|(message, _)| message.status);
    let before = status.is_some_and(|status| status.token == Some(held.token) && is_result(status.state));
    if before {
        return Ok(());
    }
    let mono = turn.mono();
    turn.volatile.workers.cancel_heard(held.id, held.token, mono);
    Err(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d10_a_message_is_refused_that_would_leave_less_than_the_reserve() {
        const LEAST: u64 = 64 << 20;
        for (free, more, is_taken) in [
            (None, 1, true),
            (Some(LEAST), 0, true),
            (Some(LEAST + 9), 9, true),
            (Some(LEAST + 9), 10, false),
            (Some(LEAST - 1), 0, false),
            (Some(9), 9, false),
            (Some(0), 0, false),
            (Some(u64::MAX - 1), u64::MAX, false),
        ] {
            let checked = check_free(free, (more, LEAST), Path::new("/state"));
            assert_eq!(checked.is_ok(), is_taken, "{free:?} {more}");
            let Err(refusal) = checked else { continue };
            assert_eq!(refusal.code, ErrorCode::Refused);
            assert!(
                refusal.message.contains("/state has") && refusal.message.contains("keeps 64:"),
                "{refusal}"
            );
        }
        assert!(check_free(Some(9), (9, 0), Path::new("/state")).is_ok(), "nothing is kept free");
    }
}
