//! The ends of messages' times to live, on the line of moments that steps of the clock do not move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::{Message, MessageId, MessageStatus, SessionId, Timestamp};

use crate::clock::Moment;

/// All messages with a time to live.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ExpiryIndex {
    by_id: BTreeMap<MessageId, Expiry>,
    /// Messages whose time to live runs.
    running: BTreeSet<(Moment, MessageId)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Expiry {
    session: SessionId,
    created_at: Timestamp,
    ttl: Duration,
    /// End of the time to live; derived from `created_at`, `ttl` and the clock.
    at: Moment,
}

impl ExpiryIndex {
    /// Messages whose time to live runs, soonest end first.
    pub(crate) fn running(&self) -> impl Iterator<Item = (Moment, SessionId, MessageId)> {
        self.running.iter().filter_map(|(at, id)| Some((*at, self.by_id.get(id)?.session, *id)))
    }

    /// Adds a message that was queued at the moment `created`, if it has a time to live.
    pub(crate) fn queued(&mut self, message: &Message, created: Moment) {
        let Some(at) = message.expires_at else { return };
        let (id, session, created_at) = (message.id, message.session, message.created_at);
        let ttl = at.since(created_at);
        let at = created.after(ttl);
        self.by_id.insert(id, Expiry { session, created_at, ttl, at });
        self.running.insert((at, id));
    }

    /// Notes the new status of a message. One that a user has reset does not expire before its next attempt begins.
    /// The rule uses the last status alone, because a restart knows no earlier one.
    pub(crate) fn changed(&mut self, id: MessageId, status: &MessageStatus) {
        let Some(Expiry { at, .. }) = self.by_id.get(&id) else { return };
        if status.state.is_final() || status.is_reset() {
            self.running.remove(&(*at, id));
        } else {
            self.running.insert((*at, id));
        }
    }

    pub(crate) fn forgotten(&mut self, id: MessageId) {
        if let Some(Expiry { at, .. }) = self.by_id.remove(&id) {
            self.running.remove(&(at, id));
        }
    }

    /// Recomputes all ends after a reading of the clock.
    pub(crate) fn clock_read(&mut self, moment: impl Fn(Timestamp) -> Moment) {
        for (id, expiry) in &mut self.by_id {
            let at = moment(expiry.created_at).after(expiry.ttl);
            if at != expiry.at && self.running.remove(&(expiry.at, *id)) {
                self.running.insert((at, *id));
            }
            expiry.at = at;
        }
    }
}
