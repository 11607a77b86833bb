//! The leases of the reapers.

use std::collections::BTreeMap;

use protocol::{Tag, millis};

use crate::deadlines::Mono;

/// The leases that reapers hold.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: BTreeMap<Tag, Held>,
}

/// A lease that a reaper holds.
#[derive(Debug)]
struct Held {
    connection: u64,
    since: Mono,
    /// Time from its begin to KILL, in milliseconds.
    grace_ms: u64,
}

impl Leases {
    pub(super) fn begin(&mut self, tag: Tag, connection: u64, (grace_ms, since): (u64, Mono)) {
        self.held.insert(tag, Held { connection, since, grace_ms });
    }

    pub(super) fn end(&mut self, tag: Tag) {
        self.held.remove(&tag);
    }

    pub(super) fn end_of_connection(&mut self, connection: u64) {
        self.held.retain(|_, held| held.connection != connection);
    }

    pub(super) fn is_held(&self, tag: Tag) -> bool {
        self.held.contains_key(&tag)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Returns the time from the begin of a lease to KILL, in milliseconds.
    pub(super) fn held_grace(&self, tag: Tag) -> Option<u64> {
        self.held.get(&tag).map(|held| held.grace_ms)
    }

    /// Shortens an end that is under way to this grace, in milliseconds, from `now` on. Returns false if it ends
    /// before that.
    pub(super) fn shorten(&mut self, tag: Tag, (grace_ms, now): (u64, Mono)) -> bool {
        let Some(held) = self.held.get_mut(&tag) else { return false };
        let whole = millis(held.since.until(now)).saturating_add(grace_ms);
        let is_shorter = whole < held.grace_ms;
        held.grace_ms = held.grace_ms.min(whole);
        is_shorter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag([7; 16]);

    #[test]
    fn an_end_under_way_is_shortened_and_never_prolonged() {
        for (grace, held) in [(0, 2_000), (22_000, 24_000), (23_000, 25_000), (60_000, 25_000)] {
            let mut leases = Leases::default();
            assert!(!leases.shorten(TAG, (grace, Mono(0))), "nothing is under way");
            leases.begin(TAG, 1, (25_000, Mono(1_000)));
            assert_eq!(leases.shorten(TAG, (grace, Mono(3_000))), held < 25_000, "{grace}");
            assert_eq!(leases.held_grace(TAG), Some(held), "{grace}");
        }
    }
}
