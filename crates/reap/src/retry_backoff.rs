//! Candidates held back for now: those with a running job, and those that failed recently.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use protocol::{Backoff, Tag};

/// Result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// Everything is gone, and `poold` knows.
    Gone,
    /// No lease was given, or the connection failed: nothing speaks against another attempt.
    NoLease,
    /// Something is left.
    Left,
}

/// First and longest pause after a failure; they double. A process that is blocked in the kernel takes its own time.
const FAILED_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Pause after a refused lease: someone else holds the session for a while.
const NO_LEASE_PAUSE: Duration = Duration::from_secs(1);
/// Time after its pause at which a candidate that was not named again is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Back-off of each candidate.
#[derive(Debug, Default)]
pub(crate) struct RetryBackoff(HashMap<Tag, Entry>);

#[derive(Debug)]
struct Entry {
    /// Time of the next attempt; `None` while a job runs.
    retry_at: Option<Instant>,
    /// The pauses after failures.
    pauses: Backoff,
}

impl RetryBackoff {
    /// True if a job may start.
    pub(crate) fn may_begin(&self, tag: Tag, now: Instant) -> bool {
        self.0.get(&tag).is_none_or(|entry| entry.retry_at.is_some_and(|retry_at| retry_at <= now))
    }

    /// Records the start of a job.
    pub(crate) fn started(&mut self, tag: Tag) {
        self.0
            .entry(tag)
            .or_insert_with(|| Entry { retry_at: None, pauses: Backoff::new(FAILED_PAUSE.0, FAILED_PAUSE.1) })
            .retry_at = None;
    }

    /// Records the result of a job.
    pub(crate) fn finished(&mut self, tag: Tag, result: JobResult, now: Instant) {
        self.0.retain(|_, entry| entry.retry_at.is_none_or(|retry_at| retry_at + FORGET_AFTER > now));
        let Some(entry) = self.0.get_mut(&tag) else { return };
        match result {
            JobResult::Gone => drop(self.0.remove(&tag)),
            JobResult::NoLease => entry.retry_at = Some(now + NO_LEASE_PAUSE),
            JobResult::Left => entry.retry_at = Some(now + entry.pauses.pause()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag([1; 16]);
    const OTHER: Tag = Tag([2; 16]);

    #[test]
    fn what_is_in_hand_is_not_begun_twice() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        assert!(backoff.may_begin(TAG, now));
        backoff.started(TAG);
        assert!(!backoff.may_begin(TAG, now + Duration::from_secs(3600)));
        assert!(backoff.may_begin(OTHER, now));
        backoff.finished(TAG, JobResult::Gone, now);
        assert!(backoff.may_begin(TAG, now));
    }

    #[test]
    fn what_failed_waits_longer_each_time() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        for pause in [5, 10, 20, 40, 60, 60] {
            backoff.started(TAG);
            backoff.finished(TAG, JobResult::Left, now);
            assert!(!backoff.may_begin(TAG, now + Duration::from_secs(pause) - Duration::from_millis(1)));
            now += Duration::from_secs(pause);
            assert!(backoff.may_begin(TAG, now), "{pause}");
        }
        backoff.started(TAG);
        backoff.finished(TAG, JobResult::NoLease, now);
        assert!(!backoff.may_begin(TAG, now) && backoff.may_begin(TAG, now + NO_LEASE_PAUSE));
    }

    #[test]
    fn nothing_is_remembered_for_ever() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        backoff.started(TAG);
        backoff.finished(TAG, JobResult::Left, now);
        backoff.started(OTHER);
        backoff.finished(OTHER, JobResult::Gone, now + FORGET_AFTER * 2);
        assert!(backoff.0.is_empty());
    }
}
