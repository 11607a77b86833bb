//! Snapshots that are wanted, each to begin after it was asked for.

use std::collections::VecDeque;

use tokio::time::Instant;

/// The snapshots that are wanted, oldest first: since when, and under which number; 0 for none.
#[derive(Debug, Default)]
pub(crate) struct Wanted(VecDeque<(Instant, u64)>);

impl Wanted {
    /// One more is.
    pub(crate) fn push(&mut self, number: u64, now: Instant) {
        self.0.push_back((now, number));
    }

    /// Those that a reading which began then answers are not wanted any more; the newest number of
    /// them. A server that is found silent answers all: there is nothing else to be had.
    pub(crate) fn answered(&mut self, whole: Option<Instant>, silence: bool) -> Option<u64> {
        let answers = |since: Instant| silence || whole.is_some_and(|began| began >= since);
        let mut newest = None;
        while let Some((since, number)) = self.0.front().copied()
            && answers(since)
        {
            newest = newest.max(Some(number));
            self.0.pop_front();
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_what_began_after_it_answers_and_no_later_wish_delays_an_earlier_one() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wanted = Wanted::default();
        wanted.push(1, at(0));
        wanted.push(2, at(10));
        wanted.push(3, at(30));
        assert_eq!(wanted.answered(None, false), None);
        assert_eq!(wanted.answered(Some(at(20)), false), Some(2));
        wanted.push(4, at(40));
        assert_eq!(wanted.answered(Some(at(20)), false), None, "it began too early");
        assert_eq!(wanted.answered(Some(at(30)), false), Some(3));
        assert_eq!(wanted.answered(None, true), Some(4));
        assert_eq!(wanted.answered(None, true), None);
    }
}
