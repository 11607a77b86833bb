//! Deadlines on the daemon's monotonic clock: no jump of the wall clock, no sleep of the machine and no
//! downtime of the daemon makes one pass. They are lost with the process, and set again by the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::MessageId;

/// A moment of the monotonic clock, in milliseconds since an arbitrary start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Mono(pub u64);

impl Mono {
    /// The moment after a delay; saturates.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(protocol::time::millis(delay)))
    }

    /// The time until `later`; zero if it has passed.
    pub fn until(self, later: Self) -> Duration {
        Duration::from_millis(later.0.saturating_sub(self.0))
    }
}

/// Deadlines of messages, at most one each.
#[derive(Debug, Clone, Default)]
pub struct Deadlines {
    at: BTreeMap<MessageId, Mono>,
    order: BTreeSet<(Mono, MessageId)>,
}

impl Deadlines {
    /// Sets a deadline, in place of an earlier one.
    pub fn set(&mut self, id: MessageId, at: Mono) {
        self.clear(id);
        self.at.insert(id, at);
        self.order.insert((at, id));
    }

    /// Moves the message's deadline to this time if it is later. Does nothing if the message has no deadline.
    pub(crate) fn hasten(&mut self, id: MessageId, at: Mono) {
        if self.at.get(&id).is_some_and(|before| at < *before) {
            self.set(id, at);
        }
    }

    /// Removes a deadline.
    pub fn clear(&mut self, id: MessageId) {
        if let Some(at) = self.at.remove(&id) {
            self.order.remove(&(at, id));
        }
    }

    /// The deadline of a message.
    pub fn get(&self, id: MessageId) -> Option<Mono> {
        self.at.get(&id).copied()
    }

    /// The next deadline.
    pub fn first(&self) -> Option<Mono> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out the messages whose deadlines have passed, soonest first.
    pub fn take_passed(&mut self, now: Mono) -> Vec<MessageId> {
        let mut passed = Vec::new();
        while let Some((at, id)) = self.order.first().copied().filter(|(at, _)| *at <= now) {
            self.order.remove(&(at, id));
            self.at.remove(&id);
            passed.push(id);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_passes_first_and_once() {
        let mut deadlines = Deadlines::default();
        for (id, at) in [(1, 30), (2, 10), (3, 20), (1, 15)] {
            deadlines.set(MessageId(id), Mono(at));
        }
        deadlines.hasten(MessageId(3), Mono(25));
        deadlines.hasten(MessageId(2), Mono(5));
        deadlines.hasten(MessageId(9), Mono(1));
        assert_eq!(deadlines.first(), Some(Mono(5)));
        assert_eq!(deadlines.take_passed(Mono(15)), [MessageId(2), MessageId(1)]);
        assert_eq!(deadlines.take_passed(Mono(15)), []);
        deadlines.clear(MessageId(3));
        assert_eq!((deadlines.first(), deadlines.get(MessageId(1))), (None, None));
    }
}
