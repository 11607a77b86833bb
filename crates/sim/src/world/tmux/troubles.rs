//! The times at which tmux failed: calls were lost, late or not answered.

use std::time::Duration;

use tokio::time::Instant;

/// Time for which a failure of tmux excuses what comes of it: a call may have its effect long after it was made, and
/// whoever waits for its answer goes on by what was known before.
const EXCUSED: Duration = Duration::from_secs(60);

/// Minimum time between two failures that are noted.
const APART: Duration = Duration::from_secs(1);

/// The failures of tmux, in order.
#[derive(Default)]
pub(super) struct Troubles(Vec<Instant>);

impl Troubles {
    /// Notes that a call fails now, or has its effect late.
    pub(super) fn note(&mut self) {
        if self.0.last().is_none_or(|last| last.elapsed() >= APART) {
            self.0.push(Instant::now());
        }
    }

    /// True if tmux failed a short time before this one.
    pub(super) fn excuse(&self, at: Instant) -> bool {
        self.0.iter().any(|failed| *failed <= at + APART && at.duration_since(*failed) < EXCUSED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_excuses_what_comes_of_it_for_a_minute() {
        let (mut troubles, now) = (Troubles::default(), Instant::now());
        assert!(!troubles.excuse(now));
        troubles.note();
        assert!(troubles.excuse(now + Duration::from_secs(50)));
        assert!(!troubles.excuse(now + Duration::from_secs(70)));
    }
}
