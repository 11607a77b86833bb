//! The daemon's clocks: wall time, and monotonic time that stands still while the machine sleeps.

use std::fs::Metadata;
use std::io;
use std::time::{Duration, SystemTime};

use pool::clock::Reading;
use pool::deadlines::Mono;
use protocol::clock::Clock as ClockRecord;
use protocol::{Timestamp, millis};
use tokio::time::Instant;
use world::clock::{Clock, timestamp};

/// The clock state with which the ages of files are computed.
pub(crate) struct FileAges {
    /// The recorded steps of the wall clock.
    pub(crate) clock: ClockRecord,
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
pub(crate) fn read(clock: &dyn Clock) -> Reading {
    let mut reading = Reading::default();
    for _ in 0..READ_ATTEMPTS {
        let began = clock.awake();
        reading = Reading { wall: clock.now(), awake_ms: millis(began) };
        if clock.awake().saturating_sub(began) < READ_GAP_MAX {
            break;
        }
    }
    reading
}

/// Attempts to read both clocks within [`READ_GAP_MAX`].
const READ_ATTEMPTS: usize = 5;

/// Maximum time between the two reads of a valid reading.
const READ_GAP_MAX: Duration = Duration::from_millis(100);

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
