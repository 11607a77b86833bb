//! Pending requests for snapshots. A snapshot answers only requests made before its read began.

use std::collections::VecDeque;

use tokio::time::Instant;

/// Pending requests, oldest first: time and number (0 for none) of each.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRequests(VecDeque<(Instant, u64)>);

impl SnapshotRequests {
    /// Adds a request.
    pub(crate) fn push(&mut self, number: u64, now: Instant) {
        self.0.push_back((now, number));
    }

    /// Removes the requests that are answered by a whole read that began at this time, and returns the newest number
    /// among them. A server that does not answer settles all requests, because no better answer is possible.
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
        let mut requests = SnapshotRequests::default();
        requests.push(1, at(0));
        requests.push(2, at(10));
        requests.push(3, at(30));
        assert_eq!(requests.answered(None, false), None);
        assert_eq!(requests.answered(Some(at(20)), false), Some(2));
        requests.push(4, at(40));
        assert_eq!(requests.answered(Some(at(20)), false), None, "it began too early");
        assert_eq!(requests.answered(Some(at(30)), false), Some(3));
        assert_eq!(requests.answered(None, true), Some(4));
        assert_eq!(requests.answered(None, true), None);
    }
}
