//! The end of an attempt: worked, failed, given back, lease over, worker or daemon dead.

use std::time::Duration;

use protocol::message::{REASON_MAX, RESULT_MAX};
use protocol::request::{ClaimRef, Disposition};
use protocol::{
    Event, Holder, Lifecycle, MessageReason, MessageState, MessageStatus, OsBytes, ProcId, Reason, Refusal,
    Session, SessionId, Tag, Timestamp, Token,
};

use crate::pool::Pool;
use crate::queue::backoff::{PROBE_PAUSE_MAX, RETRY_PAUSE_MAX, doubled};
use crate::queue::breaker;
use crate::queue::pending::PendingMessage;
use crate::queue::prompts::waiting_prompt;
use crate::queue::transition::{status_changed, status_now, transition};
use crate::settings::QueueRules;

/// The message that is claimed under this token now.
pub(crate) fn current_claim(pool: &Pool, held: ClaimRef) -> Result<PendingMessage<'_>, Refusal> {
    let holds = |message: &PendingMessage<'_>| {
        message.state == MessageState::Claimed && message.token == Some(held.token)
    };
    pool.find_held(held.id).filter(holds).ok_or_else(|| {
        let ClaimRef { id, token } = held;
        let why =
            format!("token {token} does not hold message {id}: it was revoked, settled or never issued");
        Refusal::conflict(why)
    })
}

/// Decides on `ack`: the message is worked.
///
/// # Errors
/// Conflict if the token is not the current one; usage if the result is too long.
pub fn ack(
    pool: &Pool,
    held: ClaimRef,
    result: Option<OsBytes>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    if result.as_ref().is_some_and(|result| result.0.len() > RESULT_MAX) {
        let why = format!("a result has at most {RESULT_MAX} bytes");
        return Err(Refusal::usage(why));
    }
    let message = current_claim(pool, held)?;
    let done = status_changed(
        &message,
        MessageStatus { result, ..status_now(&message, MessageState::Done, None, now) },
    );
    Ok(breaker::with_close(pool, &message, done))
}

/// Decides on `fail`: the message is not worked.
///
/// # Errors
/// Conflict if the token is not the current one; usage if the reason is too long.
pub fn fail(
    pool: &Pool,
    rules: &QueueRules,
    held: ClaimRef,
    (reason, then): (&str, Disposition),
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    if reason.len() > REASON_MAX {
        return Err(Refusal::usage(format!("a reason has at most {REASON_MAX} bytes")));
    }
    let message = current_claim(pool, held)?;
    Ok(match then {
        Disposition::Retry => attempt_failed(pool, rules, &message, reason, now),
        Disposition::Later(pause) => {
            let pause = pause.map(Duration::from_millis);
            let later = queue_again(rules, &message, reason.into(), pause, now);
            let probe = breaker::put_off(pool, rules, (message.session, message.kind), now);
            [later].into_iter().chain(probe).collect()
        }
        Disposition::Dead => {
            let dead = transition(&message, MessageState::Dead, Some(reason.into()), now);
            // The worker works, and the message itself is at fault: if it was a probe of the breaker, the breaker
            // closes.
            [dead].into_iter().chain(breaker::close_open(pool, message.session, message.kind)).collect()
        }
        Disposition::GiveBack => vec![give_back(&message, reason.into(), now)],
    })
}

/// Queues a message again. Its attempt had not begun, and does not count.
#[must_use]
pub fn give_back(message: &PendingMessage<'_>, reason: MessageReason, now: Timestamp) -> Event {
    requeue_uncounted(message, reason, None, now)
}

/// Queues a message again, not before this time, without counting its attempt.
fn requeue_uncounted(
    message: &PendingMessage<'_>,
    reason: MessageReason,
    not_before: Option<Timestamp>,
    now: Timestamp,
) -> Event {
    let status = status_now(message, MessageState::Queued, Some(reason), now);
    let attempts = message.attempts.saturating_sub(1);
    status_changed(message, MessageStatus { attempts, not_before, ..status })
}

/// Takes a message from its holder. The token is dropped: what the holder says
/// under it later is refused.
fn take_away(
    pool: &Pool,
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    reason: &str,
    now: Timestamp,
) -> Vec<Event> {
    attempt_failed(pool, rules, &PendingMessage { token: None, ..message.clone() }, reason, now)
}

/// True if a user or the pool has ordered the end of the holder's session. The attempt then counts as not failed.
fn is_holder_ended(pool: &Pool, message: &PendingMessage<'_>) -> bool {
    let is_ended = |session: &Session| {
        let runs = matches!(session.lifecycle, Lifecycle::Starting | Lifecycle::Live);
        !runs && session.reason.is_some_and(Reason::is_order)
    };
    let Some(holder) = message.holder else { return false };
    match (holder.host, holder.process) {
        // A host without a session on record belonged to a worker that was removed.
        (Some(host), _) => pool.tagged(host).is_none_or(is_ended),
        (None, Some(process)) => pool
            .sessions()
            .filter(|session| is_ended(session))
            .any(|session| session.incarnation.as_ref().is_some_and(|run| run.agent == Some(process))),
        (None, None) => false,
    }
}

/// Counts a failed attempt, and queues the message again. If the worker was stopped by order, nothing is counted.
fn attempt_failed(
    pool: &Pool,
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    reason: &str,
    now: Timestamp,
) -> Vec<Event> {
    if is_holder_ended(pool, message) {
        // Any other worker than a host may go on claiming until it ends, and must not get the same message again at
        // once.
        let is_of_host = message.holder.is_some_and(|holder| holder.host.is_some());
        let not_before = (!is_of_host).then(|| now.after(rules.retry_backoff));
        return vec![requeue_uncounted(message, "its worker was stopped".into(), not_before, now)];
    }
    let kind = (message.session, message.kind);
    let breaker = breaker::count_failure(pool, rules, kind, now, reason);
    [queue_again(rules, message, reason.into(), None, now)].into_iter().chain(breaker).collect()
}

/// Suspends a prompt whose turn failed by an outage: it waits before all other prompts until its agent is told to
/// continue. This is tried again and again while the outage lasts, with the pauses of probes.
#[must_use]
pub(crate) fn suspend(
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    reason: &str,
    now: Timestamp,
) -> [Event; 2] {
    let pause = doubled(rules.breaker_pause, message.attempts.saturating_sub(1), PROBE_PAUSE_MAX);
    let waits = status_now(message, MessageState::Queued, Some(reason.into()), now);
    // At least one attempt is recorded, because a message without one would be sent from the start.
    let waits = MessageStatus {
        not_before: Some(now.after(pause)),
        attempts: message.attempts.max(1),
        token: None,
        ..waits
    };
    [transition(message, MessageState::Suspended, Some(reason.into()), now), status_changed(message, waits)]
}

/// Sends the suspended prompt of a session from the start, because its agent has another conversation.
#[must_use]
pub(crate) fn restart_suspended(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Event> {
    let message = waiting_prompt(pool, session).filter(|message| message.is_suspended)?;
    let why = MessageReason::ConversationGone;
    let waits = status_now(&message, MessageState::Queued, Some(why), now);
    Some(status_changed(&message, MessageStatus { attempts: 0, token: None, ..waits }))
}

/// Ends the pause of the suspended prompt of a session: its agent has finished a turn since, so its service works
/// again.
#[must_use]
pub(crate) fn end_pause(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Event> {
    let is_paused = |message: &PendingMessage<'_>| message.not_before.is_some_and(|at| at > now);
    let message =
        waiting_prompt(pool, session).filter(|message| message.is_suspended && is_paused(message))?;
    let message = PendingMessage { token: None, ..message };
    let why = "its agent has finished a turn since";
    Some(transition(&message, MessageState::Queued, Some(why.into()), now))
}

/// Queues a message again after `pause`, or without it after a pause that grows with the attempts. After
/// `max_attempts` the message is dead instead.
#[must_use]
pub(crate) fn queue_again(
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    reason: MessageReason,
    pause: Option<Duration>,
    now: Timestamp,
) -> Event {
    // Telling the agent to continue is no further attempt.
    if message.attempts >= rules.max_attempts && !message.is_suspended {
        let why = format!("{} of {} attempts: {reason}", message.attempts, rules.max_attempts);
        return transition(message, MessageState::Dead, Some(why.into()), now);
    }
    let times = message.attempts.saturating_sub(1);
    let pause = pause.unwrap_or_else(|| doubled(rules.retry_backoff, times, RETRY_PAUSE_MAX));
    let not_before = Some(now.after(pause));
    status_changed(
        message,
        MessageStatus { not_before, ..status_now(message, MessageState::Queued, Some(reason), now) },
    )
}

/// The consequence of the end of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseEnd {
    /// The message goes to the next worker: the holder is proved dead, or is not registered and is only fenced.
    Release,
    /// The message waits until its registered worker is killed. It keeps its token, by which the worker's
    /// processes are found; its state revokes the claim.
    Revoke(Token),
}

/// Ends a lease, because it ran out or its holder is gone.
#[must_use]
pub fn lease_ended(
    pool: &Pool,
    rules: &QueueRules,
    message: &PendingMessage<'_>,
    (end, reason): (LeaseEnd, &str),
    now: Timestamp,
) -> Vec<Event> {
    match end {
        LeaseEnd::Release => take_away(pool, rules, message, reason, now),
        LeaseEnd::Revoke(token) => {
            let status = status_now(message, MessageState::Revoking, Some(reason.into()), now);
            let (token, holder) = (Some(token), message.holder.cloned());
            vec![status_changed(message, MessageStatus { token, holder, ..status })]
        }
    }
}

/// Releases the messages of a process that is proved dead, except for those `withheld`.
#[must_use]
pub fn release_dead_worker(
    pool: &Pool,
    rules: &QueueRules,
    process: ProcId,
    withheld: impl Fn(&PendingMessage<'_>) -> bool,
    now: Timestamp,
) -> Vec<Event> {
    let its = |message: &PendingMessage<'_>| {
        let worker = matches!(message.state, MessageState::Claimed | MessageState::Revoking);
        worker && message.holder.is_some_and(|holder| holder.process == Some(process))
    };
    let held = pool.held_messages().filter(|message| its(message) && !withheld(message));
    held.flat_map(|message| take_away(pool, rules, &message, "its worker died", now)).collect()
}

/// Detaches messages from the workers that hold them, which belong to another timeline, so that this pool does not end
/// them. From now on a claim is fenced by its token alone. A message whose worker was to be ended first is queued
/// again.
#[must_use]
pub fn forget_workers(pool: &Pool, now: Timestamp) -> Vec<Event> {
    let why = || MessageReason::from("the database was replaced");
    let forgotten = |message: PendingMessage<'_>| match (message.state, message.holder) {
        (MessageState::Revoking, _) => {
            Some(give_back(&PendingMessage { token: None, ..message }, why(), now))
        }
        (MessageState::Claimed, Some(holder)) => {
            let holder = Some(Holder { generator: None, process: None, ..holder.clone() });
            let status = status_now(&message, MessageState::Claimed, Some(why()), now);
            Some(status_changed(&message, MessageStatus { holder, ..status }))
        }
        _ => None,
    };
    pool.held_messages().filter_map(forgotten).collect()
}

/// Releases the messages of those hosts of workers that are proved gone, according to `is_over`.
#[must_use]
pub(crate) fn release_of_host(
    pool: &Pool,
    rules: &QueueRules,
    is_over: impl Fn(Tag) -> bool,
    now: Timestamp,
) -> Vec<Event> {
    let over =
        |message: &PendingMessage<'_>| message.holder.and_then(|holder| holder.host).is_some_and(&is_over);
    let held = pool.held_messages().filter(over);
    held.flat_map(|message| take_away(pool, rules, &message, "the host of its worker ended", now)).collect()
}

/// True if an earlier daemon was typing the message when it ended, and it is not decided yet whether the text
/// arrived.
pub fn is_cut_off(pool: &Pool, message: &PendingMessage<'_>) -> bool {
    message.state == MessageState::Typing && message.token.is_none_or(|token| token.epoch < pool.epoch())
}
