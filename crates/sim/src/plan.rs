//! The parts of a run that can be left out: kinds of trouble, what the conductor does, what clients do. A run
//! that failed is repeated with ever fewer of them, as long as it fails in the same way.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of runs while a failure is shrunk.
const RUNS_MAX: u32 = 400;

/// The parts that a run may have; clones share what came up.
#[derive(Clone, Default)]
pub(crate) struct Plan {
    /// The only parts allowed; `None` for all.
    only: Option<Arc<BTreeSet<String>>>,
    came_up: Arc<Mutex<BTreeSet<String>>>,
}

impl Plan {
    /// Returns the plan of a run with these parts alone.
    pub(crate) fn only(parts: BTreeSet<String>) -> Self {
        Self { only: Some(Arc::new(parts)), came_up: Arc::default() }
    }

    /// True if this part, which has come up, is not left out.
    pub(crate) fn has(&self, part: &str) -> bool {
        let is_allowed = self.only.as_ref().is_none_or(|only| only.contains(part));
        if is_allowed {
            self.came_up.lock().unwrap_or_else(PoisonError::into_inner).insert(part.to_owned());
        }
        is_allowed
    }

    /// Returns the parts that have come up and were not left out.
    pub(crate) fn parts(&self) -> BTreeSet<String> {
        self.came_up.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Finds the parts of a run without which it no longer fails. `fails` repeats the run with these parts alone; it
/// returns those that occurred if the run failed in the same way.
pub(crate) fn shrink(
    parts: BTreeSet<String>,
    fails: impl Fn(&BTreeSet<String>) -> Option<BTreeSet<String>>,
) -> BTreeSet<String> {
    let mut left: Vec<String> = parts.into_iter().collect();
    let (mut size, mut runs) = (left.len().div_ceil(2), 0);
    loop {
        let (mut from, before) = (0, left.len());
        while from < left.len() && runs < RUNS_MAX {
            runs += 1;
            let end = (from + size).min(left.len());
            let rest = left[..from].iter().chain(&left[end..]).cloned().collect();
            match fails(&rest) {
                Some(came_up) => left = came_up.into_iter().collect(),
                None => from = end,
            }
        }
        // Single parts are tried until none of them can be left out.
        let is_done = size <= 1 && left.len() == before;
        if is_done || runs >= RUNS_MAX || left.is_empty() {
            return left.into_iter().collect();
        }
        size = size.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::btree_set;
    use proptest::prelude::*;

    use super::*;

    fn names(numbers: impl IntoIterator<Item = u32>) -> BTreeSet<String> {
        numbers.into_iter().map(|n| format!("client0:{n}")).collect()
    }

    proptest! {
        #[test]
        fn only_what_a_failure_needs_is_left(needed in btree_set(0u32..100, 0..4)) {
            let needed = names(needed);
            let fails = |parts: &BTreeSet<String>| needed.is_subset(parts).then(|| parts.clone());
            prop_assert_eq!(shrink(names(0..100), fails), needed);
        }
    }

    #[test]
    fn a_failure_without_any_part_shrinks_to_nothing() {
        assert_eq!(shrink(names(0..7), |parts| Some(parts.clone())), BTreeSet::new());
    }

    #[test]
    fn a_failure_that_does_not_repeat_keeps_all_parts() {
        assert_eq!(shrink(names(0..9), |_| None), names(0..9));
    }
}
