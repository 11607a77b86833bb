//! Wall time, and time awake since the boot.

use std::time::{Duration, SystemTime};

use process::runtime::awake::awake;
use protocol::{Timestamp, millis};

/// The clocks of a machine.
pub trait Clock: Send + Sync {
    /// Returns the current wall time.
    fn now(&self) -> Timestamp;
    /// Returns the time since the boot without time asleep; it has the same origin for every process of one
    /// boot.
    fn awake(&self) -> Duration;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(timestamp(SystemTime::now()).0.saturating_add_signed(test_offset_ms()))
    }

    fn awake(&self) -> Duration {
        awake()
    }
}

/// Converts a system time; times before 1970 become 0.
pub fn timestamp(at: SystemTime) -> Timestamp {
    Timestamp(millis(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
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
