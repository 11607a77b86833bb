//! Tags of ended incarnations: kept while a process or a pane may carry them, then forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::Tag;

use crate::deadlines::Mono;

/// Time without a process or pane that carries a tag, after which the tag is forgotten. A process with an
/// unreadable environment may carry it unseen, and start another one meanwhile.
const UNSEEN: Duration = Duration::from_secs(3600);

/// Most tags forgotten in one turn.
const BATCH: usize = 512;

/// Retired tags without a carrier, each since the first of the consecutive scans that found none.
#[derive(Debug, Default)]
pub(crate) struct UnseenTags(BTreeMap<Tag, Mono>);

impl UnseenTags {
    /// Takes the result of a scan for the carriers of all tags. Returns the retired tags without a carrier
    /// for [`UNSEEN`].
    pub(super) fn note(
        &mut self,
        retired: impl Iterator<Item = Tag>,
        carried: &BTreeSet<Tag>,
        now: Mono,
    ) -> Vec<Tag> {
        let unseen = retired.filter(|tag| !carried.contains(tag));
        self.0 = unseen.map(|tag| (tag, self.0.get(&tag).copied().unwrap_or(now))).collect();
        let long = self.0.iter().filter(|(_, since)| since.until(now) >= UNSEEN);
        long.map(|(tag, _)| *tag).take(BATCH).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_forgotten_once_nothing_has_borne_it_for_an_hour() {
        let (mut unseen, tags) = (UnseenTags::default(), [Tag([1; 16]), Tag([2; 16])]);
        let mut note = |carried: &[Tag], minutes: u64| {
            unseen.note(tags.into_iter(), &carried.iter().copied().collect(), Mono(minutes * 60_000))
        };
        assert_eq!(note(&[], 0), []);
        assert_eq!(note(&[tags[0]], 30), [], "a process bears it again");
        assert_eq!(note(&[], 59), []);
        assert_eq!(note(&[], 60), [tags[1]]);
        assert_eq!(note(&[], 119), tags, "an hour since it was last carried");
        let many: Vec<Tag> =
            (0..2000_u64).map(|n| Tag([n.to_le_bytes(), [0; 8]].concat().try_into().unwrap())).collect();
        let none = BTreeSet::new();
        unseen.note(many.iter().copied(), &none, Mono(0));
        assert_eq!(unseen.note(many.iter().copied(), &none, Mono(4_000_000)).len(), BATCH);
    }
}
