//! What can be given out now, and giving it out.

use std::cmp::Reverse;

use protocol::message::PROMPT;
use protocol::{Event, Holder, MessageState, MessageStatus, SessionId, Timestamp, Token};

use super::book::Open;
use super::breaker;
use crate::clock;
use crate::pool::Pool;

/// Who wants what.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Whose messages.
    pub session: SessionId,
    /// The kinds; none for all but prompts.
    pub kinds: &'a [String],
    /// At most so many.
    pub max: usize,
}

/// The messages that can be given out now: the first of each kind, merged in the order in which they
/// were queued, higher priority first.
#[must_use]
pub fn claimable<'a>(pool: &'a Pool, asked: Asked<'_>, now: Timestamp) -> Vec<Open<'a>> {
    let Some(queue) = pool.book.queue(asked.session) else { return Vec::new() };
    let wanted = |kind: &str| match asked.kinds {
        [] => kind != PROMPT,
        kinds => kinds.iter().any(|wanted| wanted == kind),
    };
    let kinds = queue.lanes.keys().filter(|kind| wanted(kind));
    let mut heads: Vec<Open<'a>> = kinds.filter_map(|kind| head(pool, asked.session, kind, now)).collect();
    heads.sort_by_key(|open| (Reverse(open.priority), open.id));
    heads.truncate(asked.max);
    heads
}

/// The message of a kind that is next, unless one is in flight, or it is not time.
pub(super) fn head<'a>(pool: &'a Pool, session: SessionId, kind: &str, now: Timestamp) -> Option<Open<'a>> {
    let queue = pool.book.queue(session)?;
    let (kind, lane) = queue.lanes.get_key_value(kind)?;
    if lane.is_held() {
        return None;
    }
    let slot = queue.next_in(lane)?;
    let open = queue.open_slot(session, kind, slot);
    let held_back = pool.breaker(session, kind).is_some_and(|breaker| !breaker::lets_through(breaker, now));
    (is_due(&open, now) && !held_back).then_some(open)
}

/// A pause is over when its time has come, and when the clock went back to before it began.
fn is_due(open: &Open<'_>, now: Timestamp) -> bool {
    open.not_before.is_none_or(|at| at <= now || now < open.since)
}

/// Whether the time of something that had to wait came after `since`, or the clock went back.
#[must_use]
pub fn came_due(pool: &Pool, since: Timestamp, now: Timestamp) -> bool {
    now < since || times(pool).any(|at| since < at && at <= now)
}

/// When what was tried may be tried again, and kinds are probed.
fn times(pool: &Pool) -> impl Iterator<Item = Timestamp> {
    let pauses = pool.book.queues().flat_map(|(_, queue)| queue.pauses());
    pauses.chain(pool.breakers().filter_map(|(_, _, breaker)| breaker.probe_at))
}

/// When something that has to wait for its time can be given out, or is given up.
#[must_use]
pub fn next_due(pool: &Pool, now: Timestamp) -> Option<Timestamp> {
    let expiry = super::given_up(pool).map(|(at, _)| clock::wall(&pool.clock, at)).next();
    times(pool).filter(|at| *at > now).chain(expiry).min()
}

/// It is given to a holder. The attempt counts from here on.
#[must_use]
pub fn given(open: &Open<'_>, token: Token, holder: Holder, now: Timestamp) -> Event {
    let status = MessageStatus { holder: Some(holder), ..out(open, MessageState::Claimed, token, now) };
    changed(open, status)
}

/// It is typed under this token: durable before the first byte goes to the pane.
#[must_use]
pub fn typing(open: &Open<'_>, token: Token, now: Timestamp) -> Event {
    changed(open, out(open, MessageState::Typing, token, now))
}

fn out(open: &Open<'_>, state: MessageState, token: Token, now: Timestamp) -> MessageStatus {
    let attempts = open.attempts.saturating_add(1);
    MessageStatus { state, attempts, token: Some(token), changed_at: now, ..MessageStatus::default() }
}

pub(super) fn changed(open: &Open<'_>, status: MessageStatus) -> Event {
    Event::MessageChanged { id: open.id, session: open.session, status: Box::new(status) }
}
