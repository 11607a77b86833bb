//! Pauses that double.

use std::time::Duration;

/// Longest pause between two attempts.
pub const RETRY_PAUSE_MAX: Duration = Duration::from_secs(60);

/// Longest pause between two probes.
pub const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30 * 60);

/// `base`, doubled `times` times, at most `max`.
pub(crate) fn doubled(base: Duration, times: u32, max: Duration) -> Duration {
    base.saturating_mul(1_u32.checked_shl(times).unwrap_or(u32::MAX)).min(max)
}
