//! The kill ladder as a pure state machine: from the result of each scan and the elapsed time it decides the
//! next step.
//!
//! Each process found within the grace period gets TERM once, and CONT so that a stopped one can act on it. What a
//! process has started since its TERM may save its work, and is left to it for half of the grace, as long as it
//! lives: one that it started at the same moment may be another job, for whose end it waits. Every process found
//! later gets KILL. Done after two consecutive empty scans, because a process that forks during a scan can evade
//! one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use protocol::ProcId;

/// Consecutive empty scans required as proof that all processes have ended.
const EMPTY_SCANS: u8 = 2;

/// The action before the next scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send TERM and CONT to these processes, possibly none.
    Term(Vec<ProcId>),
    /// Send KILL to these processes.
    Kill(Vec<ProcId>),
    /// Nothing was found; scan once more.
    Rescan,
    /// All have ended.
    Done,
    /// Give up: these processes survived KILL for the whole verification period.
    GiveUp(Vec<ProcId>),
}

/// State of one kill.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// Time between the first TERM and the first KILL.
    grace: Duration,
    /// Time between the first KILL and giving up.
    verify: Duration,
    /// Processes that got TERM.
    termed: HashSet<ProcId>,
    /// Time of the first TERM, since the start.
    term_since: Option<Duration>,
    /// Time of the first KILL, since the start.
    kill_since: Option<Duration>,
    /// Consecutive empty scans so far.
    empty_scans: u8,
}

impl Ladder {
    pub(crate) fn new(grace: Duration, verify: Duration) -> Self {
        Self { grace, verify, termed: HashSet::new(), term_since: None, kill_since: None, empty_scans: 0 }
    }

    /// Replaces the grace period, also one that has begun: a shorter one may be over at once.
    pub(crate) fn set_grace(&mut self, grace: Duration) {
        self.grace = grace;
    }

    /// Returns the next step, `elapsed` after the start, for the processes that the last scan found alive, with the
    /// parents of those whose parents it found as well.
    pub(crate) fn step(
        &mut self,
        elapsed: Duration,
        found: &[ProcId],
        parents: &HashMap<ProcId, ProcId>,
    ) -> Step {
        if found.is_empty() {
            self.empty_scans = self.empty_scans.saturating_add(1);
            return if self.empty_scans >= EMPTY_SCANS { Step::Done } else { Step::Rescan };
        }
        self.empty_scans = 0;
        // The grace period starts with the first TERM, because the first scan can take long on a busy
        // machine.
        let term_since = *self.term_since.get_or_insert(elapsed);
        if elapsed.saturating_sub(term_since) < self.grace && self.kill_since.is_none() {
            let is_early = elapsed.saturating_sub(term_since) < self.grace / 2;
            let is_left = |id: ProcId| is_early && self.has_termed_ancestor(id, parents);
            let is_due = |id: &ProcId| !self.termed.contains(id) && !is_left(*id);
            let due: Vec<ProcId> = found.iter().copied().filter(is_due).collect();
            self.termed.extend(&due);
            return Step::Term(due);
        }
        let since = *self.kill_since.get_or_insert(elapsed);
        if elapsed.saturating_sub(since) > self.verify {
            Step::GiveUp(found.to_vec())
        } else {
            Step::Kill(found.to_vec())
        }
    }

    /// True if the process got TERM.
    pub(crate) fn has_termed(&self, id: ProcId) -> bool {
        self.termed.contains(&id)
    }

    /// True if a living ancestor got TERM.
    fn has_termed_ancestor(&self, id: ProcId, parents: &HashMap<ProcId, ProcId>) -> bool {
        let ancestors = std::iter::successors(parents.get(&id), |id| parents.get(id));
        // The parents are read one after the other, so that they may form a cycle.
        ancestors.take(parents.len()).any(|ancestor| self.termed.contains(ancestor))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(5);
    const VERIFY: Duration = Duration::from_secs(5);

    fn ids(pids: &[u32]) -> Vec<ProcId> {
        pids.iter().map(|pid| ProcId { pid: *pid, start: 1 }).collect()
    }

    #[test]
    fn the_rungs_in_order() {
        let mut ladder = Ladder::new(GRACE, VERIFY);
        let mut step = |at, found: &[u32]| ladder.step(Duration::from_secs(at), &ids(found), &HashMap::new());
        assert_eq!(step(0, &[7, 8]), Step::Term(ids(&[7, 8])));
        assert_eq!(step(1, &[7, 9]), Step::Term(ids(&[9])), "each gets TERM once");
        assert_eq!(step(2, &[]), Step::Rescan);
        assert_eq!(step(3, &[7]), Step::Term(vec![]), "one empty scan proves nothing");
        assert_eq!(step(5, &[7]), Step::Kill(ids(&[7])));
        assert_eq!(step(10, &[7]), Step::Kill(ids(&[7])));
        assert_eq!(step(11, &[7]), Step::GiveUp(ids(&[7])));
        assert_eq!(step(12, &[]), Step::Rescan);
        assert_eq!(step(13, &[]), Step::Done);
    }

    #[test]
    fn a_shorter_grace_ends_one_that_has_begun() {
        let mut ladder = Ladder::new(Duration::from_secs(25), VERIFY);
        let seconds = Duration::from_secs;
        assert_eq!(ladder.step(seconds(0), &ids(&[7]), &HashMap::new()), Step::Term(ids(&[7])));
        ladder.set_grace(GRACE);
        assert_eq!(ladder.step(seconds(4), &ids(&[7]), &HashMap::new()), Step::Term(vec![]));
        ladder.set_grace(Duration::ZERO);
        assert_eq!(ladder.step(seconds(4), &ids(&[7]), &HashMap::new()), Step::Kill(ids(&[7])));
    }

    #[test]
    fn no_grace_kills_at_once_and_a_long_pause_skips_no_rung() {
        assert_eq!(
            Ladder::new(Duration::ZERO, VERIFY).step(Duration::ZERO, &ids(&[7]), &HashMap::new()),
            Step::Kill(ids(&[7]))
        );
        let (late, later) = (Duration::from_secs(999), Duration::from_secs(9_999));
        let mut ladder = Ladder::new(GRACE, VERIFY);
        assert_eq!(ladder.step(late, &ids(&[7]), &HashMap::new()), Step::Term(ids(&[7])));
        assert_eq!(ladder.step(later, &ids(&[7]), &HashMap::new()), Step::Kill(ids(&[7])));
    }

    /// Processes with their parents.
    fn parents(links: &[(u32, u32)]) -> HashMap<ProcId, ProcId> {
        let id = |pid| ProcId { pid, start: 1 };
        links.iter().map(|(child, parent)| (id(*child), id(*parent))).collect()
    }

    #[test]
    fn what_a_process_starts_to_save_its_work_is_left_to_it_for_half_of_the_grace() {
        let mut ladder = Ladder::new(GRACE, VERIFY);
        let seconds = Duration::from_secs;
        let mut step =
            |at, found: &[u32], links: &[(u32, u32)]| ladder.step(seconds(at), &ids(found), &parents(links));
        assert_eq!(step(0, &[7, 8], &[(8, 7)]), Step::Term(ids(&[7, 8])));
        assert_eq!(step(1, &[7, 9, 10], &[(9, 7), (10, 9)]), Step::Term(vec![]));
        assert_eq!(step(1, &[9, 10], &[(10, 9)]), Step::Term(ids(&[9, 10])), "their parent has ended");
        assert_eq!(step(2, &[11, 12], &[(11, 12), (12, 11)]), Step::Term(ids(&[11, 12])), "a cycle");
        assert_eq!(step(2, &[11, 13], &[(13, 11)]), Step::Term(vec![]));
        assert_eq!(step(3, &[11, 13], &[(13, 11)]), Step::Term(ids(&[13])), "after half of the grace");
        assert_eq!(step(5, &[11, 14], &[(14, 11)]), Step::Kill(ids(&[11, 14])));
    }

    proptest! {
        /// For any sequence of scans: only found processes are signalled, each that was found in the second half of the
        /// grace period has got TERM, done means two empty scans, and giving up means KILL was sent before.
        #[test]
        fn p03_every_way_down_is_honest(scans in proptest::collection::vec(
            (0u64..2_000, proptest::collection::vec((2u32..6, 2u32..6), 0..4)), 1..40)) {
            let mut ladder = Ladder::new(GRACE, VERIFY);
            let (mut now, mut began, mut empty, mut killed) = (Duration::ZERO, None, 0, None);
            for (pause, links) in scans {
                now += Duration::from_millis(pause);
                let found = ids(&links.iter().map(|(pid, _)| *pid).collect::<Vec<_>>());
                empty = if found.is_empty() { empty + 1 } else { 0 };
                match ladder.step(now, &found, &parents(&links)) {
                    Step::Term(some) => {
                        prop_assert!(killed.is_none());
                        prop_assert!(some.iter().all(|id| found.contains(id)));
                        let is_late = now - *began.get_or_insert(now) >= GRACE / 2;
                        prop_assert!(!is_late || found.iter().all(|id| ladder.has_termed(*id)));
                    }
                    Step::Kill(some) => {
                        prop_assert_eq!(some, found);
                        prop_assert!(now >= GRACE);
                        killed.get_or_insert(now);
                    }
                    Step::Rescan => prop_assert_eq!(empty, 1),
                    Step::Done => { prop_assert_eq!(empty, 2); break; }
                    Step::GiveUp(some) => {
                        prop_assert_eq!(some, found);
                        prop_assert!(now > killed.unwrap() + VERIFY);
                        break;
                    }
                }
            }
        }
    }
}
