//! The messages that can be worked now, and the beginning of an attempt.

use std::cmp::Reverse;

use protocol::{Event, Holder, MessageState, MessageStatus, SessionId, Timestamp, Token};

use crate::clock;
use crate::lock::prompts::newest_of;
use crate::pool::Pool;
use crate::queue::breaker;
use crate::queue::expiry::to_expire;
use crate::queue::pending::PendingMessage;
use crate::queue::transition::status_changed;
use crate::worker::coverage::takes_kind;

/// The messages that a worker asks for.
#[derive(Debug, Clone, Copy)]
pub struct ClaimQuery<'a> {
    /// The session whose messages it works.
    pub session: SessionId,
    /// The kinds that it works; empty for all except prompts.
    pub kinds: &'a [String],
    /// Most messages to claim.
    pub max: usize,
}

/// The messages that a worker can claim now: the next of each kind, by priority, then by age.
pub fn claimable<'a>(pool: &'a Pool, query: ClaimQuery<'_>, now: Timestamp) -> Vec<PendingMessage<'a>> {
    let Some(queue) = pool.queues.queue(query.session) else { return Vec::new() };
    let kinds = queue.kinds().map(|(kind, _)| kind).filter(|kind| takes_kind(query.kinds, kind));
    let mut heads: Vec<PendingMessage<'a>> =
        kinds.filter_map(|kind| head(pool, query.session, kind, now)).collect();
    heads.sort_by_key(|message| (Reverse(message.priority), message.id));
    heads.truncate(query.max);
    heads
}

/// The next message of a kind, if none of the kind is in flight, it is due, and the kind's breaker lets it
/// through.
pub(crate) fn head<'a>(
    pool: &'a Pool,
    session: SessionId,
    kind: &str,
    now: Timestamp,
) -> Option<PendingMessage<'a>> {
    head_if(pool, session, kind, now, |_| false)
}

/// As [`head`]; the breaker does not hold back a message that `passes_breaker`.
pub(crate) fn head_if<'a>(
    pool: &'a Pool,
    session: SessionId,
    kind: &str,
    now: Timestamp,
    passes_breaker: impl Fn(&PendingMessage<'_>) -> bool,
) -> Option<PendingMessage<'a>> {
    let queue = pool.queues.queue(session)?;
    let (kind, messages) = queue.kind(kind).filter(|(_, messages)| !messages.is_held())?;
    let newest = newest_of(pool, session, kind);
    let message = queue.pending_message(session, kind, queue.next_in(messages, newest)?);
    let lets_through = || {
        let breaker = pool.breaker(session, kind);
        breaker.is_none_or(|breaker| breaker::lets_through(breaker, now)) || passes_breaker(&message)
    };
    (is_due(&message, now) && lets_through()).then_some(message)
}

/// True if a message has no pause left. A pause also ends if the clock is set back to before its beginning.
fn is_due(message: &PendingMessage<'_>, now: Timestamp) -> bool {
    message.not_before.is_none_or(|at| at <= now || now < message.since)
}

/// True if a pause ended after `since`, or the clock was set back.
pub fn came_due(pool: &Pool, since: Timestamp, now: Timestamp) -> bool {
    now < since || due_times(pool).any(|at| since < at && at <= now)
}

/// Times at which messages can be attempted again, and kinds are probed.
fn due_times(pool: &Pool) -> impl Iterator<Item = Timestamp> {
    let pauses = pool.queues.queues().flat_map(|(_, queue)| queue.pauses());
    pauses.chain(pool.breakers().filter_map(|(_, _, breaker)| breaker.probe_at))
}

/// Time of the next end of a pause or of a message's time to live.
pub fn next_due(pool: &Pool, now: Timestamp) -> Option<Timestamp> {
    let expiry = to_expire(pool).map(|(at, _)| clock::wall(&pool.clock, at)).next();
    due_times(pool).filter(|at| *at > now).chain(expiry).min()
}

/// Claims a message for a worker. The attempt counts from here on.
#[must_use]
pub fn claimed(message: &PendingMessage<'_>, token: Token, holder: Holder, now: Timestamp) -> Event {
    let status = begin_attempt(message, MessageState::Claimed, token, now);
    status_changed(message, MessageStatus { holder: Some(holder), ..status })
}

/// Begins to type a prompt under this token: durable before the first byte goes to the pane.
#[must_use]
pub fn begin_typing(message: &PendingMessage<'_>, token: Token, now: Timestamp) -> Event {
    status_changed(message, begin_attempt(message, MessageState::Typing, token, now))
}

fn begin_attempt(
    message: &PendingMessage<'_>,
    state: MessageState,
    token: Token,
    now: Timestamp,
) -> MessageStatus {
    let attempts = message.attempts.saturating_add(1);
    MessageStatus { state, attempts, token: Some(token), changed_at: now, ..MessageStatus::default() }
}
