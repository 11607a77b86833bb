//! The messages of one kind of one session that are not over, in the order in which they are worked:
//! higher priority first, then as they were queued. One that is tried again keeps its place.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use protocol::{MessageId, Timestamp};

use super::slot::{Place, Slot};

/// Below so many gaps a row is not closed up.
const GAPS: usize = 64;

#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    rows: BTreeMap<Reverse<i8>, Row>,
    /// Messages, and how many of them are in flight.
    len: u64,
    in_flight: u64,
}

/// Those of one priority, by id.
#[derive(Debug, Clone, Default)]
struct Row {
    slots: VecDeque<Slot>,
    gaps: usize,
}

impl Lane {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Messages that wait.
    pub(crate) fn waiting(&self) -> u64 {
        self.len - self.in_flight
    }

    /// When the first of those that wait was queued.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let waits = |slot: &&Slot| slot.place() == Place::Waiting;
        let firsts = self.rows.values().filter_map(|row| row.slots.iter().find(waits));
        firsts.map(|slot| slot.created_at()).min()
    }

    /// Whether the next message has to wait for another.
    pub(crate) fn is_held(&self) -> bool {
        self.in_flight > 0
    }

    /// Puts a message to its place; it is not there yet.
    pub(crate) fn put(&mut self, priority: i8, slot: Slot) {
        self.len += 1;
        self.in_flight += u64::from(slot.place() == Place::InFlight);
        let row = self.rows.entry(Reverse(priority)).or_default();
        match row.slots.back() {
            Some(last) if last.id() >= slot.id() => match row.find(slot.id()) {
                Ok(gap) => {
                    row.slots[gap] = slot;
                    row.gaps -= 1;
                }
                Err(at) => row.slots.insert(at, slot),
            },
            _ => row.push(slot),
        }
    }

    /// Takes a message out of it.
    pub(crate) fn take(&mut self, id: MessageId) -> Option<(i8, Slot)> {
        let (priority, row, at) = self.search(id)?;
        let slot = row.slots[at];
        row.slots[at] = slot.at(Place::Gone);
        row.gaps += 1;
        row.close_up();
        if row.slots.is_empty() {
            self.rows.remove(&Reverse(priority));
        }
        self.len -= 1;
        self.in_flight -= u64::from(slot.place() == Place::InFlight);
        Some((priority, slot))
    }

    /// A message of it.
    pub(crate) fn get(&self, id: MessageId) -> Option<(i8, Slot)> {
        self.rows.iter().find_map(|(priority, row)| {
            let slot = row.slots[row.find(id).ok()?];
            (slot.place() != Place::Gone).then_some((priority.0, slot))
        })
    }

    /// All of it in the order in which it is worked.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (i8, Slot)> {
        let there = |slot: &&Slot| slot.place() != Place::Gone;
        self.rows
            .iter()
            .flat_map(move |(priority, row)| row.slots.iter().filter(there).map(|slot| (priority.0, *slot)))
    }

    fn search(&mut self, id: MessageId) -> Option<(i8, &mut Row, usize)> {
        self.rows.iter_mut().find_map(|(priority, row)| {
            let at = row.find(id).ok()?;
            (row.slots[at].place() != Place::Gone).then_some((priority.0, row, at))
        })
    }
}

impl Row {
    fn find(&self, id: MessageId) -> Result<usize, usize> {
        self.slots.binary_search_by_key(&id, |slot| slot.id())
    }

    /// Grows by a quarter: doubling would leave half of a million places empty.
    fn push(&mut self, slot: Slot) {
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(self.slots.len() / 4 + 4);
        }
        self.slots.push_back(slot);
    }

    /// Drops gaps at both ends, and all of them where there are many.
    fn close_up(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.place() == Place::Gone) {
            self.slots.pop_front();
            self.gaps -= 1;
        }
        while self.slots.back().is_some_and(|slot| slot.place() == Place::Gone) {
            self.slots.pop_back();
            self.gaps -= 1;
        }
        if self.gaps > GAPS && self.gaps * 2 > self.slots.len() {
            self.slots.retain(|slot| slot.place() != Place::Gone);
            self.gaps = 0;
        }
        if self.slots.capacity() > 1024 && self.slots.len() * 4 < self.slots.capacity() {
            self.slots.shrink_to(self.slots.len() * 2);
        }
    }
}

/// Gaps make no difference.
impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        self.len == other.len && self.in_flight == other.in_flight && self.iter().eq(other.iter())
    }
}

impl Eq for Lane {}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// By id: priority and place.
    type Plain = BTreeMap<u64, (i8, Place)>;

    fn slot(id: u64, place: Place) -> Slot {
        Slot::new(MessageId(id), 1, Timestamp(id)).at(place)
    }

    fn same(lane: &Lane, plain: &Plain) {
        let mut order: Vec<_> =
            plain.iter().map(|(id, (priority, place))| (*priority, slot(*id, *place))).collect();
        order.sort_by_key(|(priority, slot)| (Reverse(*priority), slot.id()));
        assert!(lane.iter().eq(order.iter().copied()));
        let waits = |slot: Slot| slot.place() == Place::Waiting;
        assert_eq!(lane.waiting(), order.iter().filter(|(_, slot)| waits(*slot)).count() as u64);
        assert_eq!(lane.is_held(), order.iter().any(|(_, slot)| !waits(*slot)));
        assert_eq!(
            lane.oldest(),
            order.iter().filter(|(_, slot)| waits(*slot)).map(|(_, s)| s.created_at()).min()
        );
        for row in lane.rows.values() {
            assert_eq!(row.gaps, row.slots.iter().filter(|slot| slot.place() == Place::Gone).count());
            assert!(row.gaps <= GAPS.max(row.slots.len() / 2), "gaps are closed up");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

        /// Hundreds come, any of them go, and some of those come back to their place.
        #[test]
        fn q04_a_lane_is_a_sorted_list_whatever_leaves_it(moves in vec((0_u8..8, any::<prop::sample::Index>()), 0..900)) {
            let (mut lane, mut plain, mut gone) = (Lane::default(), Plain::new(), Plain::new());
            for (n, (which, index)) in (1..).zip(moves) {
                let priority = if index.index(9) == 0 { 4 } else { 0 };
                let (from, to) = if which == 0 { (&mut gone, &mut plain) } else { (&mut plain, &mut gone) };
                if n < 400 {
                    lane.put(priority, slot(n, Place::Waiting));
                    plain.insert(n, (priority, Place::Waiting));
                } else if let Some(id) = (!from.is_empty()).then(|| *from.keys().nth(index.index(from.len())).unwrap()) {
                    let (priority, place) = from.remove(&id).unwrap();
                    if which == 0 {
                        lane.put(priority, slot(id, Place::InFlight));
                        to.insert(id, (priority, Place::InFlight));
                    } else {
                        assert_eq!(lane.take(MessageId(id)), Some((priority, slot(id, place))));
                        assert_eq!((lane.take(MessageId(id)), lane.get(MessageId(id))), (None, None));
                        to.insert(id, (priority, place));
                    }
                }
                if n % 16 == 0 {
                    same(&lane, &plain);
                }
            }
            same(&lane, &plain);
        }
    }
}
