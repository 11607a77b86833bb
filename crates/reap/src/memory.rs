//! Which candidates to leave alone for now: those in hand, and those that failed a moment ago.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use protocol::Tag;

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// All of it is gone, and `poold` knows.
    Gone,
    /// There was no lease, or nobody to report to: nothing is known against it.
    NoLease,
    /// Something is left.
    Left,
}

/// The first and the longest pause before a candidate that failed is tried again; they double. A
/// process in the kernel's hands comes free in its own time.
const FAILED: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// The pause where there was no lease: somebody else holds the session for a while.
const REFUSED: Duration = Duration::from_secs(1);
/// A candidate that was not named for so long after its pause is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct Memory(HashMap<Tag, Tried>);

#[derive(Debug)]
struct Tried {
    /// When it may be tried again; `None` while a job is at it.
    again: Option<Instant>,
    /// The pause after the next failure.
    pause: Duration,
}

impl Memory {
    /// Whether a job may begin with it.
    pub(crate) fn may_begin(&self, tag: Tag, now: Instant) -> bool {
        self.0.get(&tag).is_none_or(|tried| tried.again.is_some_and(|again| again <= now))
    }

    /// A job is at it.
    pub(crate) fn begin(&mut self, tag: Tag) {
        self.0.entry(tag).or_insert(Tried { again: None, pause: FAILED.0 }).again = None;
    }

    /// The job is done.
    pub(crate) fn end(&mut self, tag: Tag, end: End, now: Instant) {
        self.0.retain(|_, tried| tried.again.is_none_or(|again| again + FORGOTTEN > now));
        let Some(tried) = self.0.get_mut(&tag) else { return };
        match end {
            End::Gone => drop(self.0.remove(&tag)),
            End::NoLease => tried.again = Some(now + REFUSED),
            End::Left => {
                tried.again = Some(now + tried.pause);
                tried.pause = (tried.pause * 2).min(FAILED.1);
            }
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
        let (mut memory, now) = (Memory::default(), Instant::now());
        assert!(memory.may_begin(TAG, now));
        memory.begin(TAG);
        assert!(!memory.may_begin(TAG, now + Duration::from_secs(3600)));
        assert!(memory.may_begin(OTHER, now));
        memory.end(TAG, End::Gone, now);
        assert!(memory.may_begin(TAG, now));
    }

    #[test]
    fn what_failed_waits_longer_each_time() {
        let (mut memory, mut now) = (Memory::default(), Instant::now());
        for pause in [5, 10, 20, 40, 60, 60] {
            memory.begin(TAG);
            memory.end(TAG, End::Left, now);
            assert!(!memory.may_begin(TAG, now + Duration::from_secs(pause) - Duration::from_millis(1)));
            now += Duration::from_secs(pause);
            assert!(memory.may_begin(TAG, now), "{pause}");
        }
        memory.begin(TAG);
        memory.end(TAG, End::NoLease, now);
        assert!(!memory.may_begin(TAG, now) && memory.may_begin(TAG, now + REFUSED));
    }

    #[test]
    fn nothing_is_remembered_for_ever() {
        let (mut memory, now) = (Memory::default(), Instant::now());
        memory.begin(TAG);
        memory.end(TAG, End::Left, now);
        memory.begin(OTHER);
        memory.end(OTHER, End::Gone, now + FORGOTTEN * 2);
        assert!(memory.0.is_empty());
    }
}
