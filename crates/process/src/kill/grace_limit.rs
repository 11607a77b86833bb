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

    pub(super) fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}
