//! `queue resolve`, `cancel`, `retry`, `purge`: a user's changes of messages.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::request::{Purge, Resolution, ResolveMessage};
use protocol::{
    ErrorCode, Event, MessageId, MessageReason, MessageState, MessageStatus, Refusal, Session, SessionId,
    Timestamp,
};

use crate::pool::Pool;
use crate::queue::breaker;
use crate::queue::doubt::CONFIRMS_WITHIN;
use crate::queue::pending::PendingMessage;
use crate::queue::send::check_capacity;
use crate::queue::transition::transition;
use crate::refusal::refuse;
use crate::settings::QueueRules;

/// The session and state of a message.
fn find(pool: &Pool, id: MessageId) -> Result<(SessionId, MessageState), Refusal> {
    let found = pool.find_message(id);
    found.ok_or_else(|| Refusal::not_found(format!("no message {id}")))
}

fn pending(pool: &Pool, session: SessionId, id: MessageId) -> Result<PendingMessage<'_>, Refusal> {
    let gone = || Refusal::not_found(format!("no message {id}"));
    pool.pending_message(session, id).ok_or_else(gone)
}

fn conflict(id: MessageId, why: &str) -> Result<Vec<Event>, Refusal> {
    refuse(ErrorCode::Conflict, format!("message {id} {why}"))
}

/// Decides on `queue resolve`. Returns no event if the message is in the wanted state already.
///
/// # Errors
/// Not found; conflict if the message is not in doubt, or is to be typed again while its agent may be taking
/// it.
pub fn resolve(pool: &Pool, asked: &ResolveMessage, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let (session, state) = find(pool, asked.id)?;
    let wanted = match asked.resolution {
        Resolution::Done => MessageState::Done,
        Resolution::Retry => MessageState::Queued,
        Resolution::Dead => MessageState::Dead,
    };
    if state == wanted {
        return Ok(Vec::new());
    }
    // A person may also resolve a prompt that was typed but is not confirmed, or that was accepted but does not end.
    if !matches!(state, MessageState::InDoubt | MessageState::Typed | MessageState::Accepted) {
        return conflict(asked.id, "is not in doubt");
    }
    let message = pending(pool, session, asked.id)?;
    if wanted == MessageState::Queued {
        let left = CONFIRMS_WITHIN.saturating_sub(pool.age(now, message.since));
        if state == MessageState::Typed && !left.is_zero() {
            let left = left.as_secs() + 1;
            return conflict(
                asked.id,
                &format!("was typed a moment ago, and its agent may still take it: try again in {left} s"),
            );
        }
        return Ok(if message.is_suspended {
            without_pause(&message, now)
        } else {
            from_the_start(asked.id, session, MessageReason::Retried, now)
        });
    }
    Ok(vec![transition(&message, wanted, Some(MessageReason::Resolved), now)])
}

/// Decides on `queue cancel`. Returns no event if the message is cancelled already.
///
/// # Errors
/// Not found; conflict if the message is with its agent or finished.
pub fn cancel(pool: &Pool, id: MessageId, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    use MessageState::{Accepted, Cancelled, Claimed, InDoubt, Queued, Revoking, Typed, Typing};
    let (session, state) = find(pool, id)?;
    match state {
        Cancelled => Ok(Vec::new()),
        Queued | Claimed | InDoubt | Revoking => {
            let message = pending(pool, session, id)?;
            Ok(vec![transition(&message, Cancelled, Some(MessageReason::Cancelled), now)])
        }
        Typing | Typed | Accepted => conflict(id, "is with the agent already"),
        _ => conflict(id, "is over"),
    }
}

/// Decides on `queue retry`. Returns no event if the message has no pause left.
///
/// # Errors
/// Not found; conflict if the message is being processed or done; refused if it is finished and the queue is full.
pub fn retry(pool: &Pool, rules: &QueueRules, id: MessageId, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    use MessageState::{Cancelled, Dead, Done, Expired, InDoubt, Queued};
    let (session, state) = find(pool, id)?;
    match state {
        Queued => {
            let message = pending(pool, session, id)?;
            let waits = message.attempts > 0 || message.not_before.is_some();
            let moved = if waits { without_pause(&message, now) } else { Vec::new() };
            Ok(moved.into_iter().chain(breaker::close(pool, session, message.kind)).collect())
        }
        Dead | Cancelled | Expired | InDoubt => {
            if let Some(size) = pool.finished_size(session, id) {
                check_capacity(pool, rules, session, u64::from(size))?;
            }
            let kind = pool.message_kind(session, id).unwrap_or_default().to_owned();
            let moved = from_the_start(id, session, MessageReason::Retried, now);
            Ok(moved.into_iter().chain(breaker::close(pool, session, &kind)).collect())
        }
        Done => conflict(id, "is done"),
        _ => conflict(id, "is being processed"),
    }
}

/// Ends the pause of a message, so that it is sent from the start; if its agent has the text already, the agent is only
/// told to continue.
fn without_pause(message: &PendingMessage<'_>, now: Timestamp) -> Vec<Event> {
    let why = MessageReason::Hastened;
    if message.is_suspended {
        let message = PendingMessage { token: None, ..message.clone() };
        return vec![transition(&message, MessageState::Queued, Some(why), now)];
    }
    from_the_start(message.id, message.session, why, now)
}

/// Queues a message as if nothing had happened, with all attempts left.
fn from_the_start(id: MessageId, session: SessionId, why: MessageReason, now: Timestamp) -> Vec<Event> {
    let status = MessageStatus { changed_at: now, reason: Some(why), ..MessageStatus::default() };
    vec![Event::MessageChanged { id, session, status: Box::new(status) }]
}

/// Most messages forgotten at a time, so that no turn takes long.
pub const FORGET_BATCH: usize = 4096;

/// Checks a purge before any of its batches.
///
/// # Errors
/// Usage for a state that is not final; not found for an id of another session; conflict for a pending
/// message.
pub fn check_purge(pool: &Pool, session: &Session, asked: &Purge) -> Result<(), Refusal> {
    if asked.states.iter().any(|state| !state.is_final()) {
        return refuse(
            ErrorCode::Usage,
            "only messages that are over can be purged; `queue cancel` ends others",
        );
    }
    for id in &asked.ids {
        match pool.message_state(session.id, *id) {
            None => {
                return refuse(ErrorCode::NotFound, format!("no message {id} of {}", session.name));
            }
            Some(state) if !state.is_final() => {
                return refuse(
                    ErrorCode::Conflict,
                    format!("message {id} is not over; `queue cancel` ends it"),
                );
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Forgets the next [`FORGET_BATCH`] messages of a `queue purge`. Fewer events mean that none is left.
#[must_use]
pub fn purge(pool: &Pool, session: SessionId, asked: &Purge, now: Timestamp) -> Vec<Event> {
    let old = Duration::from_millis(asked.older_ms);
    let ids: BTreeSet<MessageId> = asked.ids.iter().copied().collect();
    let wanted = |(id, state, _, at): &(MessageId, MessageState, &str, Timestamp)| {
        let named = ids.is_empty() || ids.contains(id);
        let of_state = asked.states.is_empty() || asked.states.contains(state);
        named && of_state && pool.age(now, *at) >= old
    };
    let forgotten = pool.finished_messages_of(session).filter(wanted).take(FORGET_BATCH);
    forgotten.map(|(id, ..)| Event::MessageForgotten { id, session }).collect()
}

/// Forgets the next [`FORGET_BATCH`] finished messages of a session, before the session is deleted.
#[must_use]
pub fn forget_finished(pool: &Pool, session: SessionId) -> Vec<Event> {
    let over = pool.finished_messages_of(session).take(FORGET_BATCH);
    over.map(|(id, ..)| Event::MessageForgotten { id, session }).collect()
}

/// Cancels all pending messages of a session and forgets all messages, before the session is deleted. The
/// journal keeps their history.
#[must_use]
pub fn forget_messages(pool: &Pool, session: SessionId, now: Timestamp) -> Vec<Event> {
    let pending: Vec<PendingMessage<'_>> = pool.pending_messages_of(session).collect();
    let cancelled = pending
        .iter()
        .map(|m| transition(m, MessageState::Cancelled, Some(MessageReason::SessionRemoved), now));
    let over = pool.finished_messages_of(session).map(|(id, ..)| id);
    let all = pending.iter().map(|m| m.id).chain(over);
    cancelled.chain(all.map(|id| Event::MessageForgotten { id, session })).collect()
}

/// The command by which a person resolves a prompt.
pub fn resolve_command(session: &str, id: MessageId) -> String {
    format!("poolctl queue resolve {session} {id} --as 'done|retry|dead'")
}
