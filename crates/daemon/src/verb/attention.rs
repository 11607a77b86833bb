//! Everything that waits for a person, and messages that stand still: for `inbox`, `status` and `stats`.

use pool::{QueueRules, inbox, queue, redaction};
use protocol::StuckLane;
use protocol::reply::InboxItem;

use crate::engine::Turn;

/// Returns everything that waits for a person.
pub(super) fn items(turn: &Turn<'_>, rules: &QueueRules) -> Vec<InboxItem> {
    pool::inbox::items(turn.pool(), turn.volatile, rules, turn.now())
}

/// Returns the items that are problems of the pool, as sentences: sessions that do not run although nobody ended them.
pub(super) fn unstarted(items: &[InboxItem]) -> impl Iterator<Item = String> {
    items.iter().filter_map(|item| match item.kind.as_str() {
        inbox::LOST => Some(format!("{}; `{}` starts what was lost", item.text, item.next)),
        inbox::FAILED => {
            Some(format!("{}: {}; `{}` tries again", item.name.for_people(), item.text, item.next))
        }
        _ => None,
    })
}

/// Returns the lanes that have stood still for too long, without secrets.
pub(super) fn stuck(turn: &Turn<'_>, rules: &QueueRules) -> Vec<StuckLane> {
    let mut stuck = queue::stuck(turn.pool(), turn.volatile, rules, turn.now());
    stuck.iter_mut().for_each(|lane| redaction::standstill(&mut lane.standstill));
    stuck
}
