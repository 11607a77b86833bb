//! How a message that was given out comes back: worked, failed, taken away, cut off.

use std::time::Duration;

use protocol::message::{REASON_MAX, RESULT_MAX};
use protocol::request::{ClaimRef, Disposition};
use protocol::{
    ErrorCode, Event, MessageState, MessageStatus, OsBytes, ProcId, Refusal, SessionId, Timestamp, Token,
};

use super::book::Open;
use super::give::changed;
use super::{PROBE_PAUSE_MAX, RETRY_PAUSE_MAX, Rules, breaker, doubled};
use crate::pool::Pool;

/// It moves on, with a reason where there is one. The token stays, so that a repeat is known.
#[must_use]
pub fn moved(open: &Open<'_>, state: MessageState, reason: Option<&str>, now: Timestamp) -> Event {
    changed(open, status(open, state, reason, now))
}

fn status(open: &Open<'_>, state: MessageState, reason: Option<&str>, now: Timestamp) -> MessageStatus {
    MessageStatus {
        state,
        attempts: open.attempts,
        token: open.token,
        changed_at: now,
        reason: reason.map(str::to_owned),
        ..MessageStatus::default()
    }
}

/// The message that is held under this token now.
fn current(pool: &Pool, held: ClaimRef) -> Result<Open<'_>, Refusal> {
    let holds = |open: &Open<'_>| open.state == MessageState::Claimed && open.token == Some(held.token);
    pool.find_open(held.id).filter(holds).ok_or_else(|| {
        let ClaimRef { id, token } = held;
        let why =
            format!("token {token} does not hold message {id}: it was taken away, settled or never given");
        Refusal::new(ErrorCode::Conflict, why)
    })
}

/// It is worked.
///
/// # Errors
/// Conflict, where the token is not the current one; usage, where the result is too long.
pub fn ack(
    pool: &Pool,
    held: ClaimRef,
    result: Option<OsBytes>,
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    if result.as_ref().is_some_and(|result| result.0.len() > RESULT_MAX) {
        let why = format!("a result has at most {RESULT_MAX} bytes");
        return Err(Refusal::new(ErrorCode::Usage, why));
    }
    let open = current(pool, held)?;
    let done = changed(&open, MessageStatus { result, ..status(&open, MessageState::Done, None, now) });
    Ok([done].into_iter().chain(breaker::closed(pool, open.session, open.kind)).collect())
}

/// It is not worked.
///
/// # Errors
/// Conflict, where the token is not the current one; usage, where the reason is too long.
pub fn fail(
    pool: &Pool,
    rules: &Rules,
    held: ClaimRef,
    (reason, then): (&str, Disposition),
    now: Timestamp,
) -> Result<Vec<Event>, Refusal> {
    if reason.len() > REASON_MAX {
        return Err(Refusal::new(ErrorCode::Usage, format!("a reason has at most {REASON_MAX} bytes")));
    }
    let open = current(pool, held)?;
    Ok(match then {
        Disposition::Retry => failed(pool, rules, &open, reason, now),
        Disposition::Later(pause) => {
            let pause = pause.map(Duration::from_millis);
            vec![again(rules, &open, reason, pause, now)]
        }
        Disposition::Dead => {
            let dead = moved(&open, MessageState::Dead, Some(reason), now);
            let kind = (open.session, open.kind);
            [dead].into_iter().chain(breaker::failed(pool, rules, kind, now, reason)).collect()
        }
        Disposition::GiveBack => vec![withdrawn(&open, reason, now)],
    })
}

/// It was not begun: the attempt does not count.
#[must_use]
pub fn withdrawn(open: &Open<'_>, reason: &str, now: Timestamp) -> Event {
    let status = status(open, MessageState::Queued, Some(reason), now);
    let attempts = open.attempts.saturating_sub(1);
    changed(open, MessageStatus { attempts, ..status })
}

/// Taken away from its holder, which counts as a failure. No token is left: whatever the holder says under
/// its own is refused from here on.
fn taken(pool: &Pool, rules: &Rules, open: &Open<'_>, reason: &str, now: Timestamp) -> Vec<Event> {
    failed(pool, rules, &Open { token: None, ..open.clone() }, reason, now)
}

fn failed(pool: &Pool, rules: &Rules, open: &Open<'_>, reason: &str, now: Timestamp) -> Vec<Event> {
    let kind = (open.session, open.kind);
    let breaker = breaker::failed(pool, rules, kind, now, reason);
    [again(rules, open, reason, None, now)].into_iter().chain(breaker).collect()
}

/// What it was given for came to nothing: another attempt after a pause, unless there were enough.
#[must_use]
pub fn tried_again(rules: &Rules, open: &Open<'_>, reason: &str, now: Timestamp) -> Event {
    again(rules, open, reason, None, now)
}

/// Suspends a prompt whose turn failed by an outage: it waits at the head of its lane until its agent is told to go on,
/// which is tried for as long as the outage lasts, with the pauses of probes.
#[must_use]
pub fn suspended(rules: &Rules, open: &Open<'_>, reason: &str, now: Timestamp) -> [Event; 2] {
    let pause = doubled(rules.breaker_pause, open.attempts.saturating_sub(1), PROBE_PAUSE_MAX);
    let waits = status(open, MessageState::Queued, Some(reason), now);
    // Without an attempt it would be one that is sent from the start.
    let waits = MessageStatus {
        not_before: Some(now.after(pause)),
        attempts: open.attempts.max(1),
        token: None,
        ..waits
    };
    [moved(open, MessageState::Suspended, Some(reason), now), changed(open, waits)]
}

/// Sends the suspended prompt of a session from the start, because its agent has another conversation.
#[must_use]
pub fn sent_from_the_start(pool: &Pool, session: SessionId, now: Timestamp) -> Option<Event> {
    let open = super::waiting_prompt(pool, session).filter(|open| open.is_suspended)?;
    let why = "its agent does not have its conversation any more";
    let waits = status(&open, MessageState::Queued, Some(why), now);
    Some(changed(&open, MessageStatus { attempts: 0, token: None, ..waits }))
}

/// Another attempt after a pause, unless there were enough.
fn again(rules: &Rules, open: &Open<'_>, reason: &str, pause: Option<Duration>, now: Timestamp) -> Event {
    // Told to go on is no attempt at it.
    if open.attempts >= rules.max_attempts && !open.is_suspended {
        let why = format!("{} of {} attempts: {reason}", open.attempts, rules.max_attempts);
        return moved(open, MessageState::Dead, Some(&why), now);
    }
    let times = open.attempts.saturating_sub(1);
    let pause = pause.unwrap_or_else(|| doubled(rules.retry_backoff, times, RETRY_PAUSE_MAX));
    let not_before = Some(now.after(pause));
    changed(open, MessageStatus { not_before, ..status(open, MessageState::Queued, Some(reason), now) })
}

/// What is known of the holder of a lease that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gone {
    /// It is proved dead, or it never promised to be ended first: the message goes to the next.
    YesOrFenced,
    /// It promised and lives: the message waits until it is ended. It keeps its token, by which what it started is
    /// found; its state takes the claim from it.
    No(Token),
}

/// A lease is over, or its holder is gone.
#[must_use]
pub fn lapsed(
    pool: &Pool,
    rules: &Rules,
    open: &Open<'_>,
    (gone, reason): (Gone, &str),
    now: Timestamp,
) -> Vec<Event> {
    match gone {
        Gone::YesOrFenced => taken(pool, rules, open, reason, now),
        Gone::No(token) => {
            let status = status(open, MessageState::Revoking, Some(reason), now);
            let (token, holder) = (Some(token), open.holder.cloned());
            vec![changed(open, MessageStatus { token, holder, ..status })]
        }
    }
}

/// A process that held messages is proved dead: they are free, but those that are withheld.
#[must_use]
pub fn dead_worker(
    pool: &Pool,
    rules: &Rules,
    process: ProcId,
    withheld: impl Fn(&Open<'_>) -> bool,
    now: Timestamp,
) -> Vec<Event> {
    let its = |open: &Open<'_>| {
        let worker = matches!(open.state, MessageState::Claimed | MessageState::Revoking);
        worker && open.holder.is_some_and(|holder| holder.process == Some(process))
    };
    let held = pool.held_messages().filter(|open| its(open) && !withheld(open));
    held.flat_map(|open| taken(pool, rules, &open, "its worker died", now)).collect()
}

/// Whether a daemon before this one was typing it when it ended: whether it arrived is not decided yet.
#[must_use]
pub fn is_cut_off(pool: &Pool, open: &Open<'_>) -> bool {
    open.state == MessageState::Typing && open.token.is_none_or(|token| token.epoch < pool.epoch())
}

/// What was being typed when its session ended may or may not have arrived, and no pane tells any more. Where somebody
/// is `at` a session still, that one says more.
#[must_use]
pub fn cut_off(pool: &Pool, at: impl Fn(SessionId) -> bool, now: Timestamp) -> Vec<Event> {
    let typing = pool.held_messages().filter(|open| open.state == MessageState::Typing && !at(open.session));
    let over = typing.filter(|open| pool.session(open.session).is_none_or(|s| !s.takes_prompts()));
    let why = "its session ended while it was typed";
    over.map(|open| moved(&open, MessageState::InDoubt, Some(why), now)).collect()
}

/// A user wants a kind tried at once: its breaker closes.
pub(crate) fn reopen(pool: &Pool, session: SessionId, kind: &str) -> Option<Event> {
    breaker::closed(pool, session, kind)
}

/// An attempt at a message of this kind failed: enough of them hold the kind back.
pub(crate) fn held_back(
    pool: &Pool,
    rules: &Rules,
    kind: (SessionId, &str),
    now: Timestamp,
    reason: &str,
) -> Vec<Event> {
    breaker::failed(pool, rules, kind, now, reason)
}
