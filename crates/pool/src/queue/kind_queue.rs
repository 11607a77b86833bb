//! The pending messages of one kind of one session, in the order in which they are worked: by priority, then
//! by age. A retried message keeps its place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use protocol::{MessageId, Timestamp};

use crate::queue::entry::{EntryState, QueueEntry};

/// Most removed entries in a row before it is compacted.
const GAPS: usize = 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct KindQueue {
    rows: BTreeMap<Reverse<i8>, Row>,
    /// Number of messages, including those in flight.
    len: u64,
    in_flight: u64,
}

/// The messages of one priority, by id.
#[derive(Debug, Clone, Default)]
struct Row {
    entries: VecDeque<QueueEntry>,
    gaps: usize,
}

impl KindQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of messages, including those in flight.
    pub(crate) fn pending(&self) -> u64 {
        self.len
    }

    /// Number of queued messages.
    pub(crate) fn waiting(&self) -> u64 {
        self.len - self.in_flight
    }

    /// Time at which the oldest queued message was queued.
    pub(crate) fn oldest(&self) -> Option<(MessageId, Timestamp)> {
        let waits = |entry: &&QueueEntry| entry.state() == EntryState::Waiting;
        let firsts = self.rows.values().filter_map(|row| row.entries.iter().find(waits));
        firsts.map(|entry| (entry.id(), entry.created_at())).min()
    }

    /// True if a message is in flight: the next one waits for it.
    pub(crate) fn is_held(&self) -> bool {
        self.in_flight > 0
    }

    /// Inserts a message that is not in the queue.
    pub(crate) fn put(&mut self, priority: i8, entry: QueueEntry) {
        self.len += 1;
        self.in_flight += u64::from(entry.state() == EntryState::InFlight);
        let row = self.rows.entry(Reverse(priority)).or_default();
        match row.entries.back() {
            Some(last) if last.id() >= entry.id() => match row.find(entry.id()) {
                Ok(gap) => {
                    row.entries[gap] = entry;
                    row.gaps -= 1;
                }
                Err(at) => row.entries.insert(at, entry),
            },
            _ => row.push(entry),
        }
    }

    /// Removes a message.
    pub(crate) fn take(&mut self, id: MessageId) -> Option<(i8, QueueEntry)> {
        let (priority, row, at) = self.search(id)?;
        let entry = row.entries[at];
        row.entries[at] = entry.with_state(EntryState::Removed);
        row.gaps += 1;
        row.close_up();
        if row.entries.is_empty() {
            self.rows.remove(&Reverse(priority));
        }
        self.len -= 1;
        self.in_flight -= u64::from(entry.state() == EntryState::InFlight);
        Some((priority, entry))
    }

    pub(crate) fn get(&self, id: MessageId) -> Option<(i8, QueueEntry)> {
        self.rows.iter().find_map(|(priority, row)| {
            let entry = row.entries[row.find(id).ok()?];
            (entry.state() != EntryState::Removed).then_some((priority.0, entry))
        })
    }

    /// All messages in the order in which they are worked.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i8, QueueEntry)> {
        let there = |entry: &&QueueEntry| entry.state() != EntryState::Removed;
        self.rows.iter().flat_map(move |(priority, row)| {
            row.entries.iter().filter(there).map(|entry| (priority.0, *entry))
        })
    }

    fn search(&mut self, id: MessageId) -> Option<(i8, &mut Row, usize)> {
        self.rows.iter_mut().find_map(|(priority, row)| {
            let at = row.find(id).ok()?;
            (row.entries[at].state() != EntryState::Removed).then_some((priority.0, row, at))
        })
    }
}

impl Row {
    fn find(&self, id: MessageId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id())
    }

    /// Grows by a quarter: doubling would leave half of a million places empty.
    fn push(&mut self, entry: QueueEntry) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len() / 4 + 4);
        }
        self.entries.push_back(entry);
    }

    /// Drops removed entries at both ends, and all of them if there are many.
    fn close_up(&mut self) {
        while self.entries.front().is_some_and(|entry| entry.state() == EntryState::Removed) {
            self.entries.pop_front();
            self.gaps -= 1;
        }
        while self.entries.back().is_some_and(|entry| entry.state() == EntryState::Removed) {
            self.entries.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > GAPS && self.gaps * 2 > self.entries.len() {
            self.entries.retain(|entry| entry.state() != EntryState::Removed);
            self.gaps = 0;
        }
        if self.entries.capacity() > 1024 && self.entries.len() * 4 < self.entries.capacity() {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

/// Removed entries make no difference.
impl PartialEq for KindQueue {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.in_flight == other.in_flight && self.iter().eq(other.iter())
    }
}

impl Eq for KindQueue {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Priority and state by id.
    type Plain = BTreeMap<u64, (i8, EntryState)>;

    fn entry(id: u64, state: EntryState) -> QueueEntry {
        QueueEntry::new(MessageId(id), 1, Timestamp(id)).with_state(state)
    }

    fn same(messages: &KindQueue, plain: &Plain) {
        let mut order: Vec<_> =
            plain.iter().map(|(id, (priority, state))| (*priority, entry(*id, *state))).collect();
        order.sort_by_key(|(priority, entry)| (Reverse(*priority), entry.id()));
        assert!(messages.iter().eq(order.iter().copied()));
        let waits = |entry: QueueEntry| entry.state() == EntryState::Waiting;
        assert_eq!(messages.waiting(), order.iter().filter(|(_, entry)| waits(*entry)).count() as u64);
        assert_eq!(messages.is_held(), order.iter().any(|(_, entry)| !waits(*entry)));
        assert_eq!(
            messages.oldest(),
            order.iter().filter(|(_, entry)| waits(*entry)).map(|(_, s)| (s.id(), s.created_at())).min()
        );
        for row in messages.rows.values() {
            assert_eq!(
                row.gaps,
                row.entries.iter().filter(|entry| entry.state() == EntryState::Removed).count()
            );
            assert!(row.gaps <= GAPS.max(row.entries.len() / 2), "gaps are closed up");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// Hundreds of messages come, some leave, and some of those return to their place.
        #[test]
        fn q04_a_kind_queue_is_a_sorted_list_whatever_leaves_it(
            moves in vec((0_u8..8, any::<prop::sample::Index>()), 0..900),
        ) {
            let (mut messages, mut plain, mut gone) = (KindQueue::default(), Plain::new(), Plain::new());
            for (n, (which, index)) in (1..).zip(moves) {
                let priority = if index.index(9) == 0 { 4 } else { 0 };
                let (from, to) = if which == 0 { (&mut gone, &mut plain) } else { (&mut plain, &mut gone) };
                if n < 400 {
                    messages.put(priority, entry(n, EntryState::Waiting));
                    plain.insert(n, (priority, EntryState::Waiting));
                } else if !from.is_empty() {
                    let id = *from.keys().nth(index.index(from.len())).unwrap();
                    let (priority, state) = from.remove(&id).unwrap();
                    if which == 0 {
                        messages.put(priority, entry(id, EntryState::InFlight));
                        to.insert(id, (priority, EntryState::InFlight));
                    } else {
                        assert_eq!(messages.take(MessageId(id)), Some((priority, entry(id, state))));
                        assert_eq!((messages.take(MessageId(id)), messages.get(MessageId(id))), (None, None));
                        to.insert(id, (priority, state));
                    }
                }
                if n % 16 == 0 {
                    same(&messages, &plain);
                }
            }
            same(&messages, &plain);
        }
    }
}
