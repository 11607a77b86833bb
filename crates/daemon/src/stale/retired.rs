//! Marks of incarnations that are over: kept while a process or a pane may still bear them, and then forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pool::deadlines::Mono;
use process::census::{Mark, Tagged};
use protocol::tmux::Server;
use protocol::{Event, Tag};

use crate::engine::Turn;

/// Time without a process or a pane that bears a mark, after which it is forgotten. A process whose environment cannot be
/// read may bear it unseen, and start another one meanwhile.
const UNSEEN: Duration = Duration::from_secs(3600);
/// Marks that are forgotten in one turn at most.
const AT_ONCE: usize = 512;

/// Retired marks without a bearer, each since the first of the looks in a row that found none.
#[derive(Debug, Default)]
pub(super) struct Unseen(BTreeMap<Tag, Mono>);

impl Unseen {
    /// Notes a look at all that bears a mark. Answers the retired marks that nothing has borne for [`UNSEEN`].
    fn note(&mut self, retired: impl Iterator<Item = Tag>, borne: &BTreeSet<Tag>, now: Mono) -> Vec<Tag> {
        let unseen = retired.filter(|tag| !borne.contains(tag));
        self.0 = unseen.map(|tag| (tag, self.0.get(&tag).copied().unwrap_or(now))).collect();
        let long = self.0.iter().filter(|(_, since)| since.until(now) >= UNSEEN);
        long.map(|(tag, _)| *tag).take(AT_ONCE).collect()
    }
}

/// Takes in which marks the processes of this machine bear, and forgets those that nothing has borne for long.
pub(super) fn forget(turn: &mut Turn<'_>, seen: &[Tagged]) {
    let state = &turn.rest.view.state;
    if matches!(state.server, Server::Unknown(_)) {
        return;
    }
    let of_process = |tagged: &Tagged| match tagged.mark {
        Mark::Incarnation(tag) => Some(tag),
        Mark::Client(_) => None,
    };
    let panes = state.panes.values().filter_map(|pane| pane.tag);
    let borne = seen.iter().filter_map(of_process).chain(panes).collect();
    let mut unseen = std::mem::take(&mut turn.rest.stale.unseen);
    let forgotten = unseen.note(turn.pool().retired_tags(), &borne, turn.mono());
    turn.rest.stale.unseen = unseen;
    turn.emit_all(forgotten.into_iter().map(Event::TagForgotten));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_forgotten_once_nothing_has_borne_it_for_an_hour() {
        let (mut unseen, marks) = (Unseen::default(), [Tag([1; 16]), Tag([2; 16])]);
        let mut note = |borne: &[Tag], minutes: u64| {
            unseen.note(marks.into_iter(), &borne.iter().copied().collect(), Mono(minutes * 60_000))
        };
        assert_eq!(note(&[], 0), []);
        assert_eq!(note(&[marks[0]], 30), [], "a process bears it again");
        assert_eq!(note(&[], 59), []);
        assert_eq!(note(&[], 60), [marks[1]]);
        assert_eq!(note(&[], 119), marks, "an hour since it was last borne");
        let many: Vec<Tag> =
            (0..2000_u64).map(|n| Tag([n.to_le_bytes(), [0; 8]].concat().try_into().unwrap())).collect();
        let none = BTreeSet::new();
        unseen.note(many.iter().copied(), &none, Mono(0));
        assert_eq!(unseen.note(many.iter().copied(), &none, Mono(4_000_000)).len(), AT_ONCE);
    }
}
