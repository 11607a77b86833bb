//! Pauses of poll loops, which double while nothing changes.

use std::time::Duration;

use tokio::time::sleep;

/// A doubling pause between two bounds.
#[derive(Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    next: Duration,
}

impl Backoff {
    /// Creates a back-off that begins with the minimum pause.
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, next: min }
    }

    /// Sleeps for the next pause.
    pub(crate) async fn pause(&mut self) {
        sleep(self.take()).await;
    }

    /// Returns the next pause, and doubles the one after it up to the maximum.
    fn take(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause
    }

    /// Begins with the minimum pause again.
    pub(crate) fn reset(&mut self) {
        self.next = self.min;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_maximum_until_they_are_reset() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(25));
        let pauses = [(); 4].map(|()| backoff.take().as_millis());
        assert_eq!(pauses, [10, 20, 25, 25]);
        backoff.reset();
        assert_eq!(backoff.take().as_millis(), 10);
    }
}
