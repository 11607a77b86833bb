//! The only clock of the daemon, the only source of chance.

use std::fs::Metadata;
use std::io;
use std::time::{Duration, Instant, SystemTime};

use nix::time::{ClockId, clock_gettime};
use pool::clock::Reading;
use pool::deadlines::Mono;
use protocol::clock::Clock;
use protocol::time::millis;
use protocol::{Tag, Timestamp};

/// Now, on the wall clock.
pub(crate) fn now() -> Timestamp {
    Timestamp(timestamp(SystemTime::now()).0.saturating_add_signed(set_by_test()))
}

/// A time of the system's.
pub(crate) fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp(millis(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

/// The ages of files at one moment.
pub(crate) struct Ages {
    /// What is known of the machine's clocks.
    pub(crate) clock: Clock,
    pub(crate) now: Timestamp,
}

impl Ages {
    /// Whether a file was last written so long ago, or longer; false where that cannot be told.
    pub(crate) fn is_old(&self, found: io::Result<Metadata>, least: Duration) -> bool {
        let written = found.and_then(|found| found.modified()).map(timestamp);
        written.is_ok_and(|at| pool::clock::age(&self.clock, self.now, at) >= least)
    }
}

/// Both clocks, read together as far as can be: between the two this process may be kept waiting.
pub(crate) fn read() -> Reading {
    let mut reading = Reading::default();
    for _ in 0..READS {
        let began = awake();
        reading = Reading { wall: now(), awake_ms: millis(began) };
        if awake().saturating_sub(began) < TOGETHER {
            break;
        }
    }
    reading
}

const READS: usize = 5;

/// Greatest time between two readings of one moment.
const TOGETHER: Duration = Duration::from_millis(100);

/// Time since the machine's start without its sleep; of the same zero for every process of one boot.
fn awake() -> Duration {
    #[cfg(not(target_os = "macos"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    // There, CLOCK_MONOTONIC goes on while the machine sleeps; this is CLOCK_UPTIME_RAW.
    #[cfg(target_os = "macos")]
    let clock = ClockId::from_raw(8);
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// Milliseconds by which a test sets the wall clock, from the file that `POOL_CLOCK` names. Only in builds with debug
/// assertions.
fn set_by_test() -> i64 {
    #[cfg(debug_assertions)]
    if let Some(path) = std::env::var_os("POOL_CLOCK") {
        return std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    }
    0
}

/// Now on the clock that only goes forward, and stands still while the machine sleeps.
pub(crate) fn mono(started: Instant) -> Mono {
    Mono(millis(started.elapsed()))
}

/// A time in UTC, for people.
pub(crate) fn text(at: Timestamp) -> String {
    // Later than anything that can be written is as good as the latest that can.
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at.0.min(LATEST_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The end of the year 9999.
const LATEST_MS: u64 = 253_402_300_799_000;

/// A time as `YYYYmmdd-HHMMSS` in UTC, for names.
pub(crate) fn stamp(at: Timestamp) -> String {
    let text = text(at);
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}

/// A fresh random tag.
///
/// # Errors
/// What the system's random source reports.
pub(crate) fn tag() -> io::Result<Tag> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(Tag(bytes))
}

/// A fresh random UUID, version 4.
///
/// # Errors
/// What the system's random source reports.
pub(crate) fn uuid() -> io::Result<String> {
    let Tag(mut bytes) = tag()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = Tag(bytes).to_string();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_like_times() {
        assert_eq!(stamp(Timestamp(1_700_000_000_000)), "20231114-221320");
        assert_ne!(tag().unwrap(), tag().unwrap());
        let uuid = uuid().unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    }
}
