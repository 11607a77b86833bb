//! The event of a message's change of state.

use protocol::{Event, MessageReason, MessageState, MessageStatus, Timestamp};

use crate::queue::pending::PendingMessage;

/// Moves a message to another state, with a reason for people. The token is kept, so that a repeated `ack` is
/// recognised.
#[must_use]
pub fn transition(
    message: &PendingMessage<'_>,
    state: MessageState,
    reason: Option<MessageReason>,
    now: Timestamp,
) -> Event {
    status_changed(message, status_now(message, state, reason, now))
}

/// Gives a message this status.
pub(crate) fn status_changed(message: &PendingMessage<'_>, status: MessageStatus) -> Event {
    Event::MessageChanged { id: message.id, session: message.session, status: Box::new(status) }
}

/// The status that a message has in another state: attempts and token are kept.
pub(crate) fn status_now(
    message: &PendingMessage<'_>,
    state: MessageState,
    reason: Option<MessageReason>,
    now: Timestamp,
) -> MessageStatus {
    MessageStatus {
        state,
        attempts: message.attempts,
        token: message.token,
        changed_at: now,
        reason,
        ..MessageStatus::default()
    }
}
