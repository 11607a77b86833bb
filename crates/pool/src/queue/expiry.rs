//! The end of messages whose time to live is over.

use protocol::{Event, MessageReason, MessageState, Timestamp};

use crate::clock;
use crate::clock::Moment;
use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::transition::transition;

/// Messages that expire at the end of their time to live unless their state changes before, soonest first: those in
/// doubt, and queued ones that are not suspended.
pub(crate) fn to_expire(pool: &Pool) -> impl Iterator<Item = (Moment, PendingMessage<'_>)> {
    let limited = pool.queues.expiring();
    let pending = limited.filter_map(|(at, session, id)| Some((at, pool.pending_message(session, id)?)));
    let expires = |message: &PendingMessage<'_>| match message.state {
        MessageState::Queued => !message.is_suspended,
        state => state == MessageState::InDoubt,
    };
    pending.filter(move |(_, message)| expires(message))
}

/// Maximum number of messages that end in one turn.
pub const EXPIRY_BATCH: usize = 4096;

/// True if the time to live of a message is over.
pub fn is_overdue(pool: &Pool, now: Timestamp) -> bool {
    let moment = clock::moment(&pool.clock, now);
    to_expire(pool).next().is_some_and(|(at, _)| at <= moment)
}

/// Ends the messages whose time to live is over, up to [`EXPIRY_BATCH`].
#[must_use]
pub fn expired(pool: &Pool, now: Timestamp) -> Vec<Event> {
    let moment = clock::moment(&pool.clock, now);
    let due = to_expire(pool).take_while(|(at, _)| *at <= moment);
    let expire = |message: &PendingMessage<'_>| {
        transition(message, MessageState::Expired, Some(MessageReason::TimeOver), now)
    };
    due.take(EXPIRY_BATCH).map(|(_, message)| expire(&message)).collect()
}
