//! `send`: a message that is on disk before it is acknowledged.

use std::time::Duration;

use protocol::message::{BODY_MAX, KEY_MAX, PROMPT};
use protocol::request::{Resolution, ResolveMessage, Send};
use protocol::{
    ErrorCode, Event, Lifecycle, Message, MessageId, MessageState, Refusal, Seq, Session, Timestamp,
};

use super::refuse;
use crate::pool::Pool;
use crate::queue;
use crate::settings::Settings;

/// A body as it is stored, which is as it will be typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: u64,
}

/// What an admitted message comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent {
    /// A new message.
    Queued(Box<Message>),
    /// The session has a message with this key and body already.
    Existing(MessageId),
}

/// Decides on `send`. `seq` is where the event will stand in the journal.
///
/// # Errors
/// Usage, refused (closed or full), conflict (the key with another body).
pub fn send(
    pool: &Pool,
    settings: &Settings,
    asked: (&Session, &Send, &Body),
    (seq, now): (Seq, Timestamp),
) -> Result<Sent, Refusal> {
    let (session, send, body) = asked;
    check(send, body)?;
    if let Some(key) = &send.key
        && let Some(first) = pool.messages_of(session.id).find(|m| m.key.as_ref() == Some(key))
    {
        if first.digest == body.digest && first.kind == send.kind {
            return Ok(Sent::Existing(first.id));
        }
        return refuse(
            ErrorCode::Conflict,
            format!("key {key:?} belongs to message {} with another text", first.id),
        );
    }
    accepts(session)?;
    has_room(pool, settings, session, body)?;
    Ok(Sent::Queued(Box::new(Message {
        id: MessageId(seq.0),
        session: session.id,
        ordinal: session.total_requests.saturating_add(1),
        kind: send.kind.clone(),
        key: send.key.clone(),
        origin: send.origin.clone(),
        size: u32::try_from(body.bytes.len()).unwrap_or(u32::MAX),
        digest: body.digest,
        enter: send.enter,
        state: MessageState::Queued,
        attempts: 0,
        token: None,
        created_at: now,
        expires_at: send.ttl_ms.map(|ms| now.after(Duration::from_millis(ms))),
        changed_at: now,
        reason: None,
    })))
}

fn check(send: &Send, body: &Body) -> Result<(), Refusal> {
    if send.kind != PROMPT {
        return refuse(
            ErrorCode::Usage,
            format!("kind {:?} has no worker yet; only {PROMPT:?} is delivered", send.kind),
        );
    }
    if body.bytes.is_empty() {
        return refuse(ErrorCode::Usage, "the text is empty");
    }
    if body.bytes.len() > BODY_MAX {
        return refuse(ErrorCode::Usage, format!("the text is {} bytes, over {BODY_MAX}", body.bytes.len()));
    }
    if send.key.as_ref().is_some_and(|key| key.is_empty() || key.len() > KEY_MAX) {
        return refuse(ErrorCode::Usage, format!("a key has 1 to {KEY_MAX} bytes"));
    }
    if send.origin.len() > KEY_MAX {
        return refuse(ErrorCode::Usage, format!("an origin has at most {KEY_MAX} bytes"));
    }
    Ok(())
}

/// Parked and lost sessions keep and take messages; those that are over or ending refuse them.
fn accepts(session: &Session) -> Result<(), Refusal> {
    match session.lifecycle {
        Lifecycle::Starting | Lifecycle::Live | Lifecycle::Parked | Lifecycle::Lost => Ok(()),
        Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Draining => refuse(
            ErrorCode::Refused,
            format!("{0} is over and takes no messages; `poolctl restart {0}` starts it again", session.name),
        ),
    }
}

fn has_room(pool: &Pool, settings: &Settings, session: &Session, body: &Body) -> Result<(), Refusal> {
    let open = || pool.open_messages_of(session.id);
    let (count, bytes) = (open().count() as u64, open().map(|m| u64::from(m.size)).sum::<u64>());
    if count < settings.queue_messages && bytes + body.bytes.len() as u64 <= settings.queue_bytes {
        return Ok(());
    }
    refuse(
        ErrorCode::Refused,
        format!("the queue of {} is full: {count} messages, {bytes} bytes", session.name),
    )
}

/// Decides on `queue resolve`.
///
/// # Errors
/// Not found, or conflict where it is not in doubt.
pub fn resolve_message(pool: &Pool, asked: &ResolveMessage) -> Result<Vec<Event>, Refusal> {
    let Some(message) = pool.message(asked.id) else {
        return refuse(ErrorCode::NotFound, format!("no message {}", asked.id));
    };
    let wanted = match asked.resolution {
        Resolution::Done => MessageState::Done,
        Resolution::Retry => MessageState::Queued,
        Resolution::Dead => MessageState::Dead,
    };
    if message.state == wanted {
        return Ok(Vec::new());
    }
    if message.state != MessageState::InDoubt {
        return refuse(ErrorCode::Conflict, format!("message {} is not in doubt", asked.id));
    }
    Ok(vec![queue::moved(message, wanted, Some("resolved by a user"))])
}
