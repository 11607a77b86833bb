//! The single time type of core, wire and disk.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Wall-clock time in milliseconds since the Unix epoch (UTC), for records and for people. Ages are computed
/// with [`crate::clock`]. Leases and locks use the daemon's monotonic clock instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

/// Converts a duration to whole milliseconds; saturates.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Timestamp {
    /// Returns the time `delay` later; saturates.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add(millis(delay)))
    }

    /// Returns the time since `earlier`; zero if the clock went back.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
