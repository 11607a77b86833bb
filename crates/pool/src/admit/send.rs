//! `send`: a message that is on disk before it is acknowledged.

use std::time::Duration;

use protocol::message::{BODY_MAX, HOPS_MAX, KEY_MAX, KIND_MAX, PROMPT};
use protocol::request::Send;
use protocol::session::Reason;
use protocol::{
    ErrorCode, Lifecycle, Message, MessageId, MessageStatus, OpId, Refusal, Seq, Session, SessionId,
    Timestamp,
};

use super::refuse;
use crate::pool::{Pool, is_between};
use crate::queue::Rules;

/// A body as it is stored, which is as it will be typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: u64,
}

/// What is to be decided on.
#[derive(Debug, Clone, Copy)]
pub struct Sending<'a> {
    /// Whose message it is to be.
    pub session: &'a Session,
    /// What was asked.
    pub send: &'a Send,
    /// Its body.
    pub body: &'a Body,
    /// The operation.
    pub op: &'a OpId,
}

/// What of earlier messages matters, read from the disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Earlier<'a> {
    /// The message that [`Pool::keyed`] names.
    pub keyed: Option<&'a Message>,
    /// The message that is named as the cause.
    pub cause: Option<&'a Message>,
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
/// Usage, refused (closed, full, or it would feed itself), conflict (the key with another body).
pub fn send(
    pool: &Pool,
    rules: &Rules,
    sending: Sending<'_>,
    earlier: Earlier<'_>,
    (seq, now): (Seq, Timestamp),
) -> Result<Sent, Refusal> {
    let Sending { session, send, body, op } = sending;
    check(send, body)?;
    if let Some(first) = earlier.keyed.filter(|first| first.session == session.id && first.key == send.key) {
        return same(first, send, body);
    }
    accepts(session, send.wake)?;
    let hops = hops(session, send, earlier.cause)?;
    has_room(pool, rules, session.id, body.bytes.len() as u64)?;
    Ok(Sent::Queued(Box::new(Message {
        id: MessageId(seq.0),
        session: session.id,
        ordinal: session.total_requests.saturating_add(1),
        kind: send.kind.clone(),
        key: send.key.clone(),
        op: Some(op.clone()),
        origin: send.origin.clone(),
        cause: send.cause,
        hops,
        priority: send.priority,
        size: u32::try_from(body.bytes.len()).unwrap_or(u32::MAX),
        digest: body.digest,
        enter: send.enter,
        max_attempts: rules.max_attempts,
        created_at: now,
        expires_at: send.ttl_ms.map(|ms| now.after(Duration::from_millis(ms))),
        status: MessageStatus { changed_at: now, ..MessageStatus::default() },
        steps: Vec::new(),
    })))
}

fn same(first: &Message, send: &Send, body: &Body) -> Result<Sent, Refusal> {
    if first.digest == body.digest && first.kind == send.kind {
        return Ok(Sent::Existing(first.id));
    }
    let key = send.key.as_deref().unwrap_or_default();
    refuse(ErrorCode::Conflict, format!("key {key:?} belongs to message {} with another text", first.id))
}

fn check(send: &Send, body: &Body) -> Result<(), Refusal> {
    kind(&send.kind)?;
    if body.bytes.is_empty() {
        return refuse(ErrorCode::Usage, "the text is empty");
    }
    if body.bytes.len() > BODY_MAX {
        return refuse(ErrorCode::Usage, format!("the text is {} bytes, over {BODY_MAX}", body.bytes.len()));
    }
    let plain = |text: &str| text.len() <= KEY_MAX && !text.chars().any(char::is_control);
    if send.key.as_ref().is_some_and(|key| key.is_empty() || !plain(key)) {
        return refuse(ErrorCode::Usage, format!("a key has 1 to {KEY_MAX} bytes and no control characters"));
    }
    if !plain(&send.origin) {
        let why = format!("an origin has at most {KEY_MAX} bytes and no control characters");
        return refuse(ErrorCode::Usage, why);
    }
    Ok(())
}

/// Whether a text is the name of a kind.
///
/// # Errors
/// Usage.
pub fn kind(text: &str) -> Result<(), Refusal> {
    let follows = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if starts && text.len() <= KIND_MAX && text.bytes().all(follows) {
        return Ok(());
    }
    let shown: String = text.chars().take(KIND_MAX * 2).collect();
    let rule = format!("lower-case letters, digits, _ and -, {KIND_MAX} characters at most");
    refuse(ErrorCode::Usage, format!("bad kind {shown:?}: {rule}"))
}

/// Parked and lost sessions keep and take messages; those that are over or ending refuse them.
fn accepts(session: &Session, wake: bool) -> Result<(), Refusal> {
    // What is on its way to start again, or to be lost, goes on to take them.
    let is_due = session.budget.due_at.is_some();
    let goes_on =
        |why: Reason| is_due || why.parks() || matches!(why, Reason::Restarted | Reason::ServerGone);
    let passing = session.lifecycle == Lifecycle::Draining && session.reason.is_some_and(goes_on);
    let starts = is_due || wake;
    match session.lifecycle {
        _ if passing || is_between(session) => Ok(()),
        Lifecycle::Starting | Lifecycle::Live | Lifecycle::Parked | Lifecycle::Lost => Ok(()),
        Lifecycle::Stopped | Lifecycle::Failed if starts => Ok(()),
        Lifecycle::Draining if session.reason == Some(Reason::Drained) => refuse(
            ErrorCode::Refused,
            format!("{} finishes what is queued and takes no more messages", session.name),
        ),
        Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Draining => refuse(
            ErrorCode::Refused,
            format!(
                "{0} is over and takes no messages; `poolctl restart {0}` starts it again, `send --wake` does both",
                session.name
            ),
        ),
    }
}

/// Nothing feeds itself: neither a worker the queue that it works, nor an agent's hook the agent.
fn hops(session: &Session, send: &Send, cause: Option<&Message>) -> Result<u8, Refusal> {
    let name = &session.name;
    if send.kind == PROMPT && send.origin == format!("hook:{}", session.id) {
        let why = format!("what the agent of {name} said is not a prompt for itself");
        return refuse(ErrorCode::Refused, why);
    }
    let Some(cause) = cause else { return Ok(0) };
    if cause.session == session.id && cause.kind == send.kind {
        let why = format!(
            "a {} for {name} that is sent while message {} of the same kind is worked would feed itself",
            send.kind, cause.id
        );
        return refuse(ErrorCode::Refused, why);
    }
    if cause.hops >= HOPS_MAX {
        let why =
            format!("message {} is the end of a chain of {HOPS_MAX} that follow from one another", cause.id);
        return refuse(ErrorCode::Refused, why);
    }
    Ok(cause.hops + 1)
}

/// Whether one more message of this size may wait.
pub(super) fn has_room(pool: &Pool, rules: &Rules, session: SessionId, size: u64) -> Result<(), Refusal> {
    let full = |whose: &str, count: u64, bytes: u64, key: &str| {
        let why = format!(
            "{whose} full: {count} messages, {bytes} bytes ([queue] {key}max_messages, {key}max_bytes)"
        );
        refuse(ErrorCode::Refused, why)
    };
    let (count, bytes) = pool.queue_size(session);
    if count >= rules.max_messages || bytes + size > rules.max_bytes {
        let name = pool.session(session).map_or_else(|| session.to_string(), |s| s.name.to_string());
        return full(&format!("the queue of {name} is"), count, bytes, "");
    }
    let (count, bytes) = pool.queue_totals();
    if count >= rules.pool_max_messages || bytes + size > rules.pool_max_bytes {
        return full("the pool's queues are", count, bytes, "pool_");
    }
    Ok(())
}
