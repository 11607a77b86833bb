//! `send`: a new message, on disk before it is acknowledged.

use std::time::Duration;

use protocol::message::{BODY_MAX, HOPS_MAX, KEY_MAX, KIND_MAX};
use protocol::request::Send;
use protocol::worker::WorkerQueue;
use protocol::{
    ErrorCode, Event, Lifecycle, Message, MessageId, MessageStatus, OpId, PROMPT, Reason, Refusal, Seq,
    Session, SessionId, Timestamp, counted,
};

use crate::pool::Pool;
use crate::refusal::refuse;
use crate::session::lifecycle::{is_restarting, still_drains};
use crate::session::restart_budget::{ends_by_itself, policy_restarts, wake_ended};
use crate::settings::QueueRules;
use crate::worker::coverage::takes_kind;

/// A body as it is stored and typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    pub bytes: Vec<u8>,
    /// Digest by which a repeated request is recognised.
    pub digest: u64,
}

/// A request to send a message.
#[derive(Debug, Clone, Copy)]
pub struct SendInputs<'a> {
    /// The session that the message is for.
    pub session: &'a Session,
    /// The request.
    pub send: &'a Send,
    pub body: &'a Body,
    /// The operation id.
    pub op: &'a OpId,
}

/// Messages that the decision depends on, read from disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct EarlierMessages<'a> {
    /// The message that [`Pool::message_by_key`] names.
    pub keyed: Option<&'a Message>,
    /// The message that the request names as its cause.
    pub cause: Option<&'a Message>,
}

/// The decision on a request to send.
#[derive(Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// A new message is to be queued.
    Queued(Box<Message>),
    /// The session has a message with this key and body already.
    Existing(MessageId),
}

/// Decides on `send`. `seq` is the position of the event in the journal.
///
/// # Errors
/// Usage; refused if the session takes no messages, the queue is full, or the message would feed its own
/// queue; conflict if the key belongs to a message with another body.
pub fn send(
    pool: &Pool,
    rules: &QueueRules,
    sending: SendInputs<'_>,
    earlier: EarlierMessages<'_>,
    (seq, now): (Seq, Timestamp),
) -> Result<SendOutcome, Refusal> {
    let SendInputs { session, send, body, op } = sending;
    check(send, body)?;
    if let Some(first) = earlier.keyed.filter(|first| first.session == session.id && first.key == send.key) {
        return existing(first, send, body);
    }
    check_worker_takes(session, &send.kind)?;
    check_accepts(session, send.wake)?;
    let hops = next_hops(session, send, earlier.cause)?;
    check_capacity(pool, rules, session.id, body.bytes.len() as u64)?;
    Ok(SendOutcome::Queued(Box::new(Message {
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
        in_doubt: send.in_doubt,
        status: MessageStatus { changed_at: now, ..MessageStatus::default() },
        steps: Vec::new(),
        deadline_at: None,
    })))
}

/// Queues a message that was decided. If it `wakes`, the start of its session is recorded as due together with it, so
/// that neither a crash nor a full pool loses that start.
#[must_use]
pub fn queued(pool: &Pool, message: &Message, wakes: bool) -> Vec<Event> {
    let session = pool.session(message.session).filter(|_| wakes);
    let woken = session.and_then(|session| wake_ended(session, message.created_at));
    std::iter::once(Event::MessageQueued(Box::new(message.clone()))).chain(woken).collect()
}

fn existing(first: &Message, send: &Send, body: &Body) -> Result<SendOutcome, Refusal> {
    if first.digest == body.digest && first.kind == send.kind {
        return Ok(SendOutcome::Existing(first.id));
    }
    let key = send.key.as_deref().unwrap_or_default();
    let what = if first.kind == send.kind { "text" } else { "kind" };
    refuse(ErrorCode::Conflict, format!("key {key:?} belongs to message {} with another {what}", first.id))
}

/// Highest priority of a message; the lowest is its negative.
const PRIORITY_MAX: i8 = 100;

fn check(send: &Send, body: &Body) -> Result<(), Refusal> {
    check_kind(&send.kind)?;
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
    if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&send.priority) {
        let why = format!("a priority is from -{PRIORITY_MAX} to {PRIORITY_MAX}");
        return refuse(ErrorCode::Usage, why);
    }
    if send.in_doubt.is_some() && send.kind != PROMPT {
        let why = "--in-doubt is for prompts: a message that a worker claims is never in doubt";
        return refuse(ErrorCode::Usage, why);
    }
    if !plain(&send.origin) {
        let why = format!("an origin has at most {KEY_MAX} bytes and no control characters");
        return refuse(ErrorCode::Usage, why);
    }
    Ok(())
}

pub(crate) fn check_kind(text: &str) -> Result<(), Refusal> {
    let follows = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    let starts = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if starts && text.len() <= KIND_MAX && text.bytes().all(follows) {
        return Ok(());
    }
    let shown: String = text.chars().take(KIND_MAX * 2).collect();
    let rule = format!("lower-case letters, digits, _ and -, {KIND_MAX} characters at most");
    refuse(ErrorCode::Usage, format!("bad kind {shown:?}: {rule}"))
}

/// Of the pool's workers only those with a queue of their own accept messages, and no prompts.
fn check_worker_takes(session: &Session, kind: &str) -> Result<(), Refusal> {
    let Some(worker) = session.worker.as_deref() else { return Ok(()) };
    let name = &worker.name;
    if worker.removed {
        return refuse(ErrorCode::Refused, format!("worker {name} is no longer in the configuration"));
    }
    match &worker.sessions {
        WorkerQueue::Own if takes_kind(&worker.kinds, kind) && kind != PROMPT => Ok(()),
        WorkerQueue::Own => {
            let kinds =
                if worker.kinds.is_empty() { "all but prompt".to_owned() } else { worker.kinds.join(", ") };
            refuse(
                ErrorCode::Usage,
                format!("messages of kind {kind} are not for worker {name}, which works {kinds}"),
            )
        }
        WorkerQueue::Sessions(_) => {
            let why = format!("worker {name} has no queue of its own: send to a session that it works");
            refuse(ErrorCode::Usage, why)
        }
    }
}

/// Refuses messages for a session that is ending or has ended, unless it will start again. Parked and lost sessions
/// accept messages.
fn check_accepts(session: &Session, wake: bool) -> Result<(), Refusal> {
    // The restart policy of the session has not decided on the next start yet.
    let is_undecided = policy_restarts(session) && !session.budget.exhausted;
    let starts = session.budget.due_at.is_some() || is_undecided;
    let goes_on = |why: Reason| why.parks() || matches!(why, Reason::Restarted | Reason::ServerGone);
    match session.lifecycle {
        _ if is_restarting(session) || session.worker.is_some() => Ok(()),
        Lifecycle::Starting | Lifecycle::Live | Lifecycle::Parked | Lifecycle::Lost => Ok(()),
        Lifecycle::Draining if session.reason == Some(Reason::Drained) => Err(still_drains(session)),
        Lifecycle::Draining if starts || session.reason.is_some_and(goes_on) => Ok(()),
        Lifecycle::Draining if wake && ends_by_itself(session) => Ok(()),
        Lifecycle::Stopped | Lifecycle::Failed if starts || wake => Ok(()),
        Lifecycle::Draining if wake => {
            let name = &session.name;
            let why =
                format!("{name} is being ended; try again once it is: `poolctl wait {name} --for exit`");
            refuse(ErrorCode::Refused, why)
        }
        Lifecycle::Stopped | Lifecycle::Failed | Lifecycle::Draining => refuse(
            ErrorCode::Refused,
            format!(
                "{0} is over and takes no messages; `poolctl restart {0}` starts it again, `send --wake` does both",
                session.name
            ),
        ),
    }
}

/// Returns the number of messages that led to this one. Refuses loops: a worker that sends to the queue from which it
/// works, and an agent's hook that prompts the agent.
fn next_hops(session: &Session, send: &Send, cause: Option<&Message>) -> Result<u8, Refusal> {
    let name = &session.name;
    if send.kind == PROMPT && send.origin == format!("hook:{}", session.id) {
        let why = format!(
            "a hook of {name}'s agent may not send a prompt to {name}: the agent would prompt itself"
        );
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

/// Checks that the queues have capacity for one more message of this size. A message that is too large even for empty
/// queues gets another refusal, as waiting makes no room for it.
pub(crate) fn check_capacity(
    pool: &Pool,
    rules: &QueueRules,
    session: SessionId,
    size: u64,
) -> Result<(), Refusal> {
    let full = |whose: &str, count: u64, bytes: u64, key: &str| {
        let why = format!(
            "{whose} full: {}, {bytes} bytes ([queue] {key}max_messages, {key}max_bytes)",
            counted(count, "message")
        );
        refuse(ErrorCode::Refused, why)
    };
    for (max, key) in [(rules.max_bytes, ""), (rules.pool_max_bytes, "pool_")] {
        if size > max {
            let why = format!(
                "the message has {size} bytes, and [queue] {key}max_bytes is {max}: shorten it, or raise that"
            );
            return refuse(ErrorCode::Refused, why);
        }
    }
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

/// Removes all characters that could end bracketed paste or act as keys: C0 controls except line feed and
/// tab, DEL, C1 controls. CR LF and CR become LF.
pub fn strip_controls(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    lines.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}
