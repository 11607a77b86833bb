//! The clock that all processes of a machine share.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the time since the boot without time asleep; it has the same origin for every process of one boot.
pub fn awake() -> Duration {
    #[cfg(not(target_os = "macos"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    // On macOS CLOCK_MONOTONIC also counts time asleep; 8 is CLOCK_UPTIME_RAW.
    #[cfg(target_os = "macos")]
    let clock = ClockId::from_raw(8);
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}
