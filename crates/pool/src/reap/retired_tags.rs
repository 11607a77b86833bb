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

/// Number of scans in a row without a carrier after which a tag has none: one scan may miss a process that calls exec.
const PROVED_BY: u32 = 2;

/// Retired tags without a carrier, and those that something carries again.
#[derive(Debug, Default)]
pub(crate) struct UnseenTags {
    /// The consecutive scans that found no carrier: the time of the first, and their number.
    unseen: BTreeMap<Tag, (Mono, u32)>,
    /// Tags that had no carrier, and have one again: a process that was started later, with a saved environment.
    revived: BTreeSet<Tag>,
}

impl UnseenTags {
    /// Takes the result of a scan for the carriers of all tags. Returns the retired tags without a carrier
    /// for [`UNSEEN`].
    pub(super) fn note(
        &mut self,
        retired: impl Iterator<Item = Tag>,
        carried: &BTreeSet<Tag>,
        now: Mono,
    ) -> Vec<Tag> {
        let (seen, unseen): (Vec<Tag>, Vec<Tag>) = retired.partition(|tag| carried.contains(tag));
        let was_gone = |tag: &Tag| self.unseen.get(tag).is_some_and(|(_, scans)| *scans >= PROVED_BY);
        let is_revived = |tag: &Tag| self.revived.contains(tag) || was_gone(tag);
        self.revived = seen.into_iter().filter(is_revived).collect();
        let count = |tag: Tag| {
            let (since, scans) = self.unseen.get(&tag).copied().unwrap_or((now, 0));
            (tag, (since, scans.saturating_add(1)))
        };
        self.unseen = unseen.into_iter().map(count).collect();
        let long = self.unseen.iter().filter(|(_, (since, _))| since.until(now) >= UNSEEN);
        long.map(|(tag, _)| *tag).take(BATCH).collect()
    }

    /// True if no process had this tag for a while. Those that have it now were not left by the tag's incarnation.
    pub(super) fn is_revived(&self, tag: Tag) -> bool {
        self.revived.contains(&tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_carries_a_tag_once_nothing_did_was_not_left() {
        let (mut unseen, tag) = (UnseenTags::default(), Tag([1; 16]));
        let mut is_revived = |is_carried: bool| {
            let carried = is_carried.then_some(tag).into_iter().collect();
            unseen.note([tag].into_iter(), &carried, Mono(0));
            unseen.is_revived(tag)
        };
        assert!(!is_revived(true), "left by its incarnation");
        assert!(!is_revived(false));
        assert!(!is_revived(true), "one scan may miss it");
        assert!(!is_revived(false) && !is_revived(false));
        assert!(is_revived(true) && is_revived(true), "as long as it lives");
        assert!(!is_revived(false));
    }

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
