//! A limit of the grace of a kill that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A limit of the time between TERM and KILL, shared by the thread that ends the processes and by those that
/// lower it; no limit at first.
#[derive(Debug, Clone)]
pub struct GraceLimit(Arc<AtomicU64>);

impl Default for GraceLimit {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(u64::MAX)))
    }
}

impl GraceLimit {
    /// Lowers the limit; a higher one than before changes nothing.
    pub fn lower(&self, to: Duration) {
        self.0.fetch_min(u64::try_from(to.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the grace of an init that does not exit by itself: what is left of this one after `elapsed`, and at
    /// least `minimum`, to sync its exit record.
    pub(super) fn grace_of_init(&self, grace: Duration, elapsed: Duration, minimum: Duration) -> Duration {
        grace.min(self.get()).saturating_sub(elapsed).max(minimum)
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_init_that_does_not_exit_has_time_to_sync_its_record_also_without_a_grace() {
        let (limit, seconds) = (GraceLimit::default(), Duration::from_secs);
        assert_eq!(limit.grace_of_init(seconds(20), seconds(1), seconds(5)), seconds(19));
        assert_eq!(limit.grace_of_init(Duration::ZERO, seconds(1), seconds(5)), seconds(5));
        limit.lower(Duration::ZERO);
        assert_eq!(limit.grace_of_init(seconds(20), seconds(1), seconds(5)), seconds(5));
    }
}
