//! Pauses between attempts, which double while the attempts fail.

use std::time::Duration;

/// A doubling pause between two bounds.
#[derive(Debug, Clone)]
pub struct Backoff {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    /// A back-off that begins with the shortest pause.
    pub const fn new(shortest: Duration, longest: Duration) -> Self {
        Self { shortest, longest, next: shortest }
    }

    /// Returns the next pause, and doubles the one after it up to the longest.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// Begins with the shortest pause again.
    pub fn reset(&mut self) {
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

    #[test]
    fn the_longest_need_not_be_a_doubled_shortest() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(25));
        let pauses = [(); 4].map(|()| backoff.pause().as_millis());
        assert_eq!(pauses, [10, 20, 25, 25]);
    }
}
