//! The rungs of ending a set of processes, without touching one: given what each look finds and
//! how much time has passed, it says what to do next.
//!
//! TERM (and CONT, so that the stopped can act on it) once to each found within the grace; KILL to
//! whatever is found after it; done after two empty looks in a row, because a process that forks
//! while it is looked for can hide from one.

use std::collections::HashSet;
use std::time::Duration;

use protocol::ids::ProcId;

/// How many looks in a row must find nothing.
const EMPTY_LOOKS: u8 = 2;

/// What to do before the next look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// TERM and CONT to these, perhaps none.
    Term(Vec<ProcId>),
    /// KILL to these.
    Kill(Vec<ProcId>),
    /// Nothing was found: look once more.
    Look,
    /// All are gone.
    Done,
    /// These outlived a KILL for the whole time of verification.
    GiveUp(Vec<ProcId>),
}

/// One way down.
#[derive(Debug)]
pub struct Ladder {
    grace: Duration,
    verify: Duration,
    asked: HashSet<ProcId>,
    asking_since: Option<Duration>,
    killing_since: Option<Duration>,
    empty: u8,
}

impl Ladder {
    /// TERM and KILL are `grace` apart; `verify` after the KILL it gives up.
    #[must_use]
    pub fn new(grace: Duration, verify: Duration) -> Self {
        Self { grace, verify, asked: HashSet::new(), asking_since: None, killing_since: None, empty: 0 }
    }

    /// The next step, `elapsed` after the start, from those that this look found alive.
    pub fn step(&mut self, elapsed: Duration, found: &[ProcId]) -> Step {
        if found.is_empty() {
            self.empty = self.empty.saturating_add(1);
            return if self.empty >= EMPTY_LOOKS { Step::Done } else { Step::Look };
        }
        self.empty = 0;
        // From the first TERM on: the first look may have taken long on a busy machine.
        let asking_since = *self.asking_since.get_or_insert(elapsed);
        if elapsed.saturating_sub(asking_since) < self.grace && self.killing_since.is_none() {
            return Step::Term(found.iter().copied().filter(|id| self.asked.insert(*id)).collect());
        }
        let since = *self.killing_since.get_or_insert(elapsed);
        if elapsed.saturating_sub(since) > self.verify {
            Step::GiveUp(found.to_vec())
        } else {
            Step::Kill(found.to_vec())
        }
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
        let seconds = Duration::from_secs;
        assert_eq!(ladder.step(seconds(0), &ids(&[7, 8])), Step::Term(ids(&[7, 8])));
        assert_eq!(ladder.step(seconds(1), &ids(&[7, 9])), Step::Term(ids(&[9])), "each is asked once");
        assert_eq!(ladder.step(seconds(2), &ids(&[])), Step::Look);
        assert_eq!(ladder.step(seconds(3), &ids(&[7])), Step::Term(vec![]), "one empty look proves nothing");
        assert_eq!(ladder.step(seconds(5), &ids(&[7])), Step::Kill(ids(&[7])));
        assert_eq!(ladder.step(seconds(10), &ids(&[7])), Step::Kill(ids(&[7])));
        assert_eq!(ladder.step(seconds(11), &ids(&[7])), Step::GiveUp(ids(&[7])));
        assert_eq!(ladder.step(seconds(12), &ids(&[])), Step::Look);
        assert_eq!(ladder.step(seconds(13), &ids(&[])), Step::Done);
    }

    #[test]
    fn no_grace_kills_at_once_and_a_long_pause_skips_no_rung() {
        assert_eq!(
            Ladder::new(Duration::ZERO, VERIFY).step(Duration::ZERO, &ids(&[7])),
            Step::Kill(ids(&[7]))
        );
        let (late, later) = (Duration::from_secs(999), Duration::from_secs(9_999));
        let mut ladder = Ladder::new(GRACE, VERIFY);
        assert_eq!(ladder.step(late, &ids(&[7])), Step::Term(ids(&[7])));
        assert_eq!(ladder.step(later, &ids(&[7])), Step::Kill(ids(&[7])));
    }

    proptest! {
        /// Against any sequence of looks: only what was found is signalled, each is asked before the
        /// first KILL or found after the grace, done means two empty looks, giving up means killed before.
        #[test]
        fn p03_every_way_down_is_honest(looks in proptest::collection::vec(
            (0u64..2_000, proptest::collection::vec(2u32..6, 0..4)), 1..40)) {
            let mut ladder = Ladder::new(GRACE, VERIFY);
            let (mut now, mut empty, mut killed) = (Duration::ZERO, 0, None);
            for (pause, pids) in looks {
                now += Duration::from_millis(pause);
                let found = ids(&pids);
                empty = if found.is_empty() { empty + 1 } else { 0 };
                match ladder.step(now, &found) {
                    Step::Term(some) => {
                        prop_assert!(killed.is_none());
                        prop_assert!(some.iter().all(|id| found.contains(id)));
                    }
                    Step::Kill(some) => {
                        prop_assert_eq!(some, found);
                        prop_assert!(now >= GRACE);
                        killed.get_or_insert(now);
                    }
                    Step::Look => prop_assert_eq!(empty, 1),
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
