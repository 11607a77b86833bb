//! Tags of incarnations that are over: kept while a process or a pane may bear them, and forgotten after that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use protocol::Tag;

use crate::deadlines::Mono;

/// Time without a process or a pane that bears a tag, after which the tag is forgotten. A process whose environment cannot
/// be read may bear it unseen, and start another one meanwhile.
const UNSEEN: Duration = Duration::from_secs(3600);
/// Most tags forgotten in one turn.
const AT_ONCE: usize = 512;

/// Retired tags without a bearer, each since the first of the consecutive scans that found none.
#[derive(Debug, Default)]
pub struct UnseenTags(BTreeMap<Tag, Mono>);

impl UnseenTags {
    /// Notes a scan for the bearers of all tags. Returns the retired tags that nothing has borne for [`UNSEEN`].
    pub(super) fn note(
        &mut self,
        retired: impl Iterator<Item = Tag>,
        borne: &BTreeSet<Tag>,
        now: Mono,
    ) -> Vec<Tag> {
        let unseen = retired.filter(|tag| !borne.contains(tag));
        self.0 = unseen.map(|tag| (tag, self.0.get(&tag).copied().unwrap_or(now))).collect();
        let long = self.0.iter().filter(|(_, since)| since.until(now) >= UNSEEN);
        long.map(|(tag, _)| *tag).take(AT_ONCE).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_forgotten_once_nothing_has_borne_it_for_an_hour() {
        let (mut unseen, tags) = (UnseenTags::default(), [Tag([1; 16]), Tag([2; 16])]);
        let mut note = |borne: &[Tag], minutes: u64| {
            unseen.note(tags.into_iter(), &borne.iter().copied().collect(), Mono(minutes * 60_000))
        };
        assert_eq!(note(&[], 0), []);
        assert_eq!(note(&[tags[0]], 30), [], "a process bears it again");
        assert_eq!(note(&[], 59), []);
        assert_eq!(note(&[], 60), [tags[1]]);
        assert_eq!(note(&[], 119), tags, "an hour since it was last borne");
        let many: Vec<Tag> =
            (0..2000_u64).map(|n| Tag([n.to_le_bytes(), [0; 8]].concat().try_into().unwrap())).collect();
        let none = BTreeSet::new();
        unseen.note(many.iter().copied(), &none, Mono(0));
        assert_eq!(unseen.note(many.iter().copied(), &none, Mono(4_000_000)).len(), AT_ONCE);
    }
}
