//! `queue resolve`, `cancel`, `retry`, `purge`: what a user does to messages.

use std::collections::BTreeSet;
use std::time::Duration;

use protocol::request::{Purge, Resolution, ResolveMessage};
use protocol::{
    ErrorCode, Event, MessageId, MessageState, MessageStatus, Refusal, Session, SessionId, Timestamp,
};

use super::refuse;
use super::send::has_room;
use crate::pool::Pool;
use crate::queue::{self, Open, Rules};

/// The session of a message and where it is.
fn find(pool: &Pool, id: MessageId) -> Result<(SessionId, MessageState), Refusal> {
    let found = pool.find_message(id);
    found.ok_or_else(|| Refusal::new(ErrorCode::NotFound, format!("no message {id}")))
}

fn open(pool: &Pool, session: SessionId, id: MessageId) -> Result<Open<'_>, Refusal> {
    let gone = || Refusal::new(ErrorCode::NotFound, format!("no message {id}"));
    pool.open_message(session, id).ok_or_else(gone)
}

fn conflict(id: MessageId, why: &str) -> Result<Vec<Event>, Refusal> {
    refuse(ErrorCode::Conflict, format!("message {id} {why}"))
}

/// How long an agent may take to tell that it has a prompt: twice what was measured at most for the slowest, a Codex under
/// load (6.3 s).
const CONFIRMS_WITHIN: Duration = Duration::from_secs(12);

/// Decides on `queue resolve`. No event where it is so already.
///
/// # Errors
/// Not found, or conflict where it is not in doubt, or is to be typed anew while its agent may be taking it.
pub fn resolve_message(pool: &Pool, asked: &ResolveMessage, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    let (session, state) = find(pool, asked.id)?;
    let wanted = match asked.resolution {
        Resolution::Done => MessageState::Done,
        Resolution::Retry => MessageState::Queued,
        Resolution::Dead => MessageState::Dead,
    };
    if state == wanted {
        return Ok(Vec::new());
    }
    // What was typed and never confirmed, or taken and never ended, is for a person to say as well.
    if !matches!(state, MessageState::InDoubt | MessageState::Typed | MessageState::Accepted) {
        return conflict(asked.id, "is not in doubt");
    }
    let open = open(pool, session, asked.id)?;
    if wanted == MessageState::Queued {
        let left = CONFIRMS_WITHIN.saturating_sub(pool.age(now, open.since));
        if state == MessageState::Typed && open.since <= now && !left.is_zero() {
            let left = left.as_secs() + 1;
            return conflict(
                asked.id,
                &format!("was typed a moment ago and may be taken yet: try again in {left} s"),
            );
        }
        return Ok(if open.is_suspended {
            at_once(&open, now)
        } else {
            anew(asked.id, session, "to be tried again, by a user", now)
        });
    }
    Ok(vec![queue::moved(&open, wanted, Some("resolved by a user"), now)])
}

/// Decides on `queue cancel`. No event where it is cancelled already.
///
/// # Errors
/// Not found, or conflict where it is being typed or over.
pub fn cancel(pool: &Pool, id: MessageId, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    use MessageState::{Accepted, Cancelled, Claimed, InDoubt, Queued, Revoking, Typed, Typing};
    let (session, state) = find(pool, id)?;
    match state {
        Cancelled => Ok(Vec::new()),
        Queued | Claimed | InDoubt | Revoking => {
            let open = open(pool, session, id)?;
            Ok(vec![queue::moved(&open, Cancelled, Some("cancelled by a user"), now)])
        }
        Typing | Typed | Accepted => conflict(id, "is with the agent already"),
        _ => conflict(id, "is over"),
    }
}

/// Decides on `queue retry`. No event where it waits for nothing.
///
/// # Errors
/// Not found, conflict where it is being worked or was, refused where it is over and the queue is full.
pub fn retry(pool: &Pool, rules: &Rules, id: MessageId, now: Timestamp) -> Result<Vec<Event>, Refusal> {
    use MessageState::{Cancelled, Dead, Done, Expired, InDoubt, Queued};
    let (session, state) = find(pool, id)?;
    match state {
        Queued => {
            let open = open(pool, session, id)?;
            let waits = open.attempts > 0 || open.not_before.is_some();
            let moved = if waits { at_once(&open, now) } else { Vec::new() };
            Ok(moved.into_iter().chain(queue::reopen(pool, session, open.kind)).collect())
        }
        Dead | Cancelled | Expired | InDoubt => {
            if let Some(size) = pool.size_if_over(session, id) {
                has_room(pool, rules, session, u64::from(size))?;
            }
            let kind = pool.message_kind(session, id).unwrap_or_default().to_owned();
            let moved = anew(id, session, "to be tried again, by a user", now);
            Ok(moved.into_iter().chain(queue::reopen(pool, session, &kind)).collect())
        }
        Done => conflict(id, "is done"),
        _ => conflict(id, "is being worked"),
    }
}

/// Tries it without a pause: from the start, unless its agent has its text already and is only told to go on.
fn at_once(open: &Open<'_>, now: Timestamp) -> Vec<Event> {
    let why = "to be tried at once, by a user";
    if open.is_suspended {
        let open = Open { token: None, ..open.clone() };
        return vec![queue::moved(&open, MessageState::Queued, Some(why), now)];
    }
    anew(open.id, open.session, why, now)
}

/// As if nothing had happened: all attempts are left to it.
fn anew(id: MessageId, session: SessionId, why: &str, now: Timestamp) -> Vec<Event> {
    let status = MessageStatus { changed_at: now, reason: Some(why.to_owned()), ..MessageStatus::default() };
    vec![Event::MessageChanged { id, session, status: Box::new(status) }]
}

/// At most so many messages are forgotten in one go, so that nobody waits long for it.
pub const FORGET_AT_ONCE: usize = 4096;

/// Whether a purge makes sense.
///
/// # Errors
/// Usage for a state that is not final; not found, conflict, for an id that is not one of the session's,
/// or not over.
pub fn may_purge(pool: &Pool, session: &Session, asked: &Purge) -> Result<(), Refusal> {
    if asked.states.iter().any(|state| !state.is_final()) {
        return refuse(
            ErrorCode::Usage,
            "only messages that are over can be purged; `queue cancel` ends others",
        );
    }
    for id in &asked.ids {
        match pool.message_state(session.id, *id) {
            None => return refuse(ErrorCode::NotFound, format!("no message {id} of {}", session.name)),
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

/// `queue purge`, [`FORGET_AT_ONCE`] messages at a time: none are left where there are fewer.
#[must_use]
pub fn purge(pool: &Pool, session: SessionId, asked: &Purge, now: Timestamp) -> Vec<Event> {
    let old = Duration::from_millis(asked.older_ms);
    let ids: BTreeSet<MessageId> = asked.ids.iter().copied().collect();
    let wanted = |(id, state, _, at): &(MessageId, MessageState, &str, Timestamp)| {
        let named = ids.is_empty() || ids.contains(id);
        let of_state = asked.states.is_empty() || asked.states.contains(state);
        named && of_state && pool.age(now, *at) >= old
    };
    let forgotten = pool.over_messages_of(session).filter(wanted).take(FORGET_AT_ONCE);
    forgotten.map(|(id, ..)| Event::MessageForgotten { id, session }).collect()
}

/// Messages of a session that are over, [`FORGET_AT_ONCE`] at a time, before it is deleted.
#[must_use]
pub fn forget_over(pool: &Pool, session: SessionId) -> Vec<Event> {
    let over = pool.over_messages_of(session).take(FORGET_AT_ONCE);
    over.map(|(id, ..)| Event::MessageForgotten { id, session }).collect()
}

/// What becomes of a session's messages before it is deleted: what was not worked is cancelled, and all
/// are forgotten. The journal keeps what was said of them.
#[must_use]
pub fn forget_messages(pool: &Pool, session: SessionId, now: Timestamp) -> Vec<Event> {
    let open: Vec<Open<'_>> = pool.open_messages_of(session).collect();
    let cancelled =
        open.iter().map(|m| queue::moved(m, MessageState::Cancelled, Some("its session was removed"), now));
    let over = pool.over_messages_of(session).map(|(id, ..)| id);
    let all = open.iter().map(|m| m.id).chain(over);
    cancelled.chain(all.map(|id| Event::MessageForgotten { id, session })).collect()
}
