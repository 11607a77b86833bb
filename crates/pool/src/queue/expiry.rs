//! When messages with a limited time are given up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{Message, MessageId, MessageStatus, SessionId, Timestamp};

use crate::clock::Moment;

/// All messages with a limited time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Expiries {
    of: BTreeMap<MessageId, Expiry>,
    /// Those whose time runs.
    running: BTreeSet<(Moment, MessageId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expiry {
    session: SessionId,
    created_at: Timestamp,
    ttl: Duration,
    /// Follows from both, and from what is known of the clock.
    at: Moment,
}

impl Expiries {
    /// Those whose time runs, soonest first.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Moment, SessionId, MessageId)> {
        self.running.iter().filter_map(|(at, id)| Some((*at, self.of.get(id)?.session, *id)))
    }

    /// `created`: when it was queued, as a moment of the pool.
    pub(crate) fn queued(&mut self, message: &Message, created: Moment) {
        let Some(at) = message.expires_at else { return };
        let (id, session, created_at) = (message.id, message.session, message.created_at);
        let ttl = at.since(created_at);
        let at = created.after(ttl);
        self.of.insert(id, Expiry { session, created_at, ttl, at });
        self.running.insert((at, id));
    }

    /// What is queued anew has all the time there is until it is given out again. Follows from the last
    /// change alone, which is all that a restart knows.
    pub(crate) fn changed(&mut self, id: MessageId, status: &MessageStatus) {
        let Some(Expiry { at, .. }) = self.of.get(&id) else { return };
        if status.state.is_final() || status.is_reset() {
            self.running.remove(&(*at, id));
        } else {
            self.running.insert((*at, id));
        }
    }

    pub(crate) fn forgotten(&mut self, id: MessageId) {
        if let Some(Expiry { at, .. }) = self.of.remove(&id) {
            self.running.remove(&(at, id));
        }
    }

    /// What is known of the clock changed.
    pub(crate) fn clock_read(&mut self, moment: impl Fn(Timestamp) -> Moment) {
        for (id, expiry) in &mut self.of {
            let at = moment(expiry.created_at).after(expiry.ttl);
            if at != expiry.at && self.running.remove(&(expiry.at, *id)) {
                self.running.insert((at, *id));
            }
            expiry.at = at;
        }
    }
}
