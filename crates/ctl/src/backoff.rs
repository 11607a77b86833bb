//! The pause between two attempts, which doubles while they fail.

use std::time::Duration;

/// A doubling pause between two bounds.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// A back-off that begins with the shortest pause.
    #[must_use]
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest }
    }

    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Begins with the shortest pause again.
    pub(crate) fn reset(&mut self) {
        self.next = self.shortest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
        let pauses: Vec<u64> = (0..7).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.pause().as_secs(), 1);
    }
}
