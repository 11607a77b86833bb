//! The messages of a session as its archive has them.

use std::collections::BTreeMap;

use protocol::{MessageId, MessageState, SessionId, Timestamp};

use crate::pool::Pool;

/// The messages of a session, each with its state and the time of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedMessages(BTreeMap<MessageId, (MessageState, Timestamp)>);

impl ArchivedMessages {
    /// Returns the messages that a session has now.
    pub fn of(pool: &Pool, session: SessionId) -> Self {
        let pending =
            pool.pending_messages_of(session).map(|message| (message.id, (message.state, message.since)));
        let finished = pool.finished_messages_of(session).map(|(id, state, _, at)| (id, (state, at)));
        Self(pending.chain(finished).collect())
    }

    /// Returns the ids, in ascending order.
    pub fn ids(&self) -> Vec<MessageId> {
        self.0.keys().copied().collect()
    }

    /// True if the archive has all messages of the session in their current states. It may have more, which were
    /// forgotten since.
    pub fn covers(&self, pool: &Pool, session: SessionId) -> bool {
        Self::of(pool, session).0.iter().all(|(id, now)| self.0.get(id) == Some(now))
    }
}
