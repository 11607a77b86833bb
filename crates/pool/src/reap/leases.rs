//! The leases of the reapers, and the graces of the ends.

use std::collections::BTreeMap;

use protocol::Tag;
use protocol::time::millis;

use crate::deadlines::Mono;

/// The leases that reapers hold, and the graces that users ask for.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: BTreeMap<Tag, Held>,
    graces: BTreeMap<Tag, u64>,
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

    /// Returns the time from the begin of a lease to KILL, in milliseconds.
    pub(super) fn held_grace(&self, tag: Tag) -> Option<u64> {
        self.held.get(&tag).map(|held| held.grace_ms)
    }

    /// Takes the grace that a user asks for, or the `usual` one, from `now` on. An end under way is only
    /// shortened by it.
    pub(super) fn ask_grace(&mut self, tag: Tag, asked: Option<u64>, (usual, now): (u64, Mono)) {
        let Some(held) = self.held.get_mut(&tag) else {
            self.graces.extend(asked.map(|grace| (tag, grace)));
            return;
        };
        let grace = asked.unwrap_or(usual);
        let whole = millis(held.since.until(now)).saturating_add(grace);
        if whole < held.grace_ms {
            held.grace_ms = whole;
            self.graces.insert(tag, grace);
        }
    }

    pub(super) fn grace(&self, tag: Tag) -> Option<u64> {
        self.graces.get(&tag).copied()
    }

    pub(super) fn forget_grace(&mut self, tag: Tag) {
        self.graces.remove(&tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag([7; 16]);
    const USUAL: u64 = 5_000;

    fn leased(grace: u64) -> Leases {
        let mut leases = Leases::default();
        leases.ask_grace(TAG, Some(grace), (USUAL, Mono(0)));
        leases.begin(TAG, 1, (grace, Mono(1_000)));
        leases
    }

    #[test]
    fn an_end_under_way_is_shortened_and_never_prolonged() {
        for (asked, held, next) in [
            (Some(0), 2_000, 0),
            (None, 2_000 + USUAL, USUAL),
            (Some(22_000), 24_000, 22_000),
            (Some(60_000), 25_000, 25_000),
        ] {
            let mut leases = leased(25_000);
            leases.ask_grace(TAG, asked, (USUAL, Mono(3_000)));
            assert_eq!((leases.held_grace(TAG), leases.grace(TAG)), (Some(held), Some(next)), "{asked:?}");
        }
    }

    #[test]
    fn before_the_lease_the_last_grace_that_was_asked_for_counts() {
        let mut leases = Leases::default();
        leases.ask_grace(TAG, None, (USUAL, Mono(0)));
        assert_eq!(leases.grace(TAG), None, "the configured one");
        leases.ask_grace(TAG, Some(25_000), (USUAL, Mono(0)));
        leases.ask_grace(TAG, Some(60_000), (USUAL, Mono(1)));
        leases.ask_grace(TAG, None, (USUAL, Mono(2)));
        assert_eq!(leases.grace(TAG), Some(60_000));
    }
}
