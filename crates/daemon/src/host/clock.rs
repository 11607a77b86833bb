//! The daemon's clocks: wall time, and monotonic time that stands still while the machine sleeps.

use std::fs::Metadata;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use nix::time::{ClockId, clock_gettime};
use pool::clock::Reading;
use pool::deadlines::Mono;
use protocol::Timestamp;
use protocol::clock::Clock;
use protocol::time::millis;

/// Returns the current wall time.
pub(crate) fn now() -> Timestamp {
    Timestamp(timestamp(SystemTime::now()).0.saturating_add_signed(test_offset_ms()))
}

/// Converts a system time; times before 1970 become 0.
pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp(millis(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// The clock state with which the ages of files are computed.
pub(crate) struct FileAges {
    /// The recorded steps of the wall clock.
    pub(crate) clock: Clock,
    pub(crate) now: Timestamp,
}

impl FileAges {
    /// True if a file was last modified at least `least` ago; false if its time cannot be read.
    pub(crate) fn is_old(&self, found: io::Result<Metadata>, least: Duration) -> bool {
        let written = found.and_then(|found| found.modified()).map(timestamp);
        written.is_ok_and(|at| pool::clock::age(&self.clock, self.now, at) >= least)
    }
}

/// Reads both clocks as close together as possible: the process may be preempted between the two reads.
pub(crate) fn read() -> Reading {
    let mut reading = Reading::default();
    for _ in 0..READ_ATTEMPTS {
        let began = uptime();
        reading = Reading { wall: now(), awake_ms: millis(began) };
        if uptime().saturating_sub(began) < READ_GAP_MAX {
            break;
        }
    }
    reading
}

/// Attempts to read both clocks within [`READ_GAP_MAX`].
const READ_ATTEMPTS: usize = 5;

/// Maximum time between the two reads of a valid reading.
const READ_GAP_MAX: Duration = Duration::from_millis(100);

/// Time since boot without time asleep; it has the same origin for every process of one boot.
fn uptime() -> Duration {
    #[cfg(not(target_os = "macos"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    // There, CLOCK_MONOTONIC also counts time asleep; 8 is CLOCK_UPTIME_RAW.
    #[cfg(target_os = "macos")]
    let clock = ClockId::from_raw(8);
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// Offset of the wall clock in milliseconds, which a test writes into the file that `POOL_CLOCK` names. Only
/// in builds with debug assertions.
fn test_offset_ms() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(path) = std::env::var_os("POOL_CLOCK") {
        return std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    }
    0
}

/// Returns the current monotonic time; `started` is its origin.
pub(crate) fn mono(started: Instant) -> Mono {
    Mono(millis(started.elapsed()))
}

/// Formats a time for people, in UTC.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    // Times beyond the format's range are shown as the latest one.
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(at.0.min(LATEST_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The last second of the year 9999, the latest time that RFC 3339 can express.
const LATEST_MS: u64 = 253_402_300_799_000;

/// Formats a time as `YYYYmmdd-HHMMSS` in UTC, for names.
pub(crate) fn name_stamp(at: Timestamp) -> String {
    let text = rfc3339(at);
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_like_times() {
        assert_eq!(name_stamp(Timestamp(1_700_000_000_000)), "20231114-221320");
    }
}
