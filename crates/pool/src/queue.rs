//! What is to be typed next. One prompt at a time a session, in the order they were queued.

use protocol::message::PROMPT;
use protocol::reply::QueueCounts;
use protocol::{Event, Incarnation, Lifecycle, Message, MessageState, Session, SessionId, Timestamp, Token};

use crate::pool::Pool;

/// The sessions whose next prompt can be typed now.
pub fn deliverable(pool: &Pool) -> impl Iterator<Item = SessionId> + '_ {
    pool.sessions().filter(|s| next(pool, s.id).is_some()).map(|s| s.id)
}

/// The message to type next into a session, if it may be typed now.
#[must_use]
pub fn next(pool: &Pool, session: SessionId) -> Option<&Message> {
    let takes = |s: &Session| s.lifecycle == Lifecycle::Live && s.incarnation.as_ref().is_some_and(is_open);
    if !pool.session(session).is_some_and(takes) {
        return None;
    }
    let mut lane = pool.open_messages_of(session).filter(|m| m.kind == PROMPT);
    let first = lane.next()?;
    let held = first.state.in_flight() || lane.any(|m| m.state.in_flight());
    (!held).then_some(first)
}

/// Its pane is known and takes input.
fn is_open(run: &Incarnation) -> bool {
    !run.dead && run.server.is_some() && run.pane.is_some()
}

/// Counts of a session's messages, or of all.
#[must_use]
pub fn counts(pool: &Pool, session: Option<SessionId>) -> QueueCounts {
    let mut counts = QueueCounts::default();
    let all: Box<dyn Iterator<Item = &Message>> = match session {
        Some(session) => Box::new(pool.messages_of(session)),
        None => Box::new(pool.messages()),
    };
    for message in all {
        match message.state {
            MessageState::Queued => {
                counts.queued += 1;
                counts.oldest_at = counts.oldest_at.or(Some(message.created_at));
            }
            MessageState::InDoubt => counts.in_doubt += 1,
            MessageState::Dead => counts.dead += 1,
            state if state.in_flight() => counts.claimed += 1,
            _ => {}
        }
    }
    counts
}

/// Whether nothing of a session waits or is in flight.
#[must_use]
pub fn is_empty(pool: &Pool, session: SessionId) -> bool {
    pool.open_messages_of(session).next().is_none()
}

/// It is given out under this token: durable before the first byte goes to the pane.
#[must_use]
pub fn typing(message: &Message, token: Token) -> Event {
    let attempts = message.attempts.saturating_add(1);
    changed(message, MessageState::Typing, Some(token), attempts, None)
}

/// It moves on, with a reason where there is one.
#[must_use]
pub fn moved(message: &Message, state: MessageState, reason: Option<&str>) -> Event {
    changed(message, state, None, message.attempts, reason)
}

fn changed(
    message: &Message,
    state: MessageState,
    token: Option<Token>,
    attempts: u32,
    reason: Option<&str>,
) -> Event {
    Event::MessageChanged {
        id: message.id,
        session: message.session,
        state,
        token,
        attempts,
        reason: reason.map(str::to_owned),
    }
}

/// What waits and whose time ran out.
#[must_use]
pub fn expired(pool: &Pool, now: Timestamp) -> Vec<Event> {
    let over = |m: &&Message| {
        let waits = matches!(m.state, MessageState::Queued | MessageState::InDoubt);
        waits && m.expires_at.is_some_and(|at| at <= now)
    };
    pool.open_messages()
        .filter(over)
        .map(|m| moved(m, MessageState::Expired, Some("its time ran out")))
        .collect()
}

/// After a start: what was being typed when the last daemon ended may or may not have arrived.
#[must_use]
pub fn recover(pool: &Pool) -> Vec<Event> {
    pool.cut_off()
        .map(|m| moved(m, MessageState::InDoubt, Some("the daemon stopped while it was typed")))
        .collect()
}

/// The text with everything removed that could leave paste mode or act as a key: C0 controls but
/// line feed and tab, DEL and C1 controls. CR LF and CR become LF.
#[must_use]
pub fn printable(text: &str) -> String {
    let lines = text.replace("\r\n", "\n").replace('\r', "\n");
    lines.chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}
