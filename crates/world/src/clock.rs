//! Wall time, and time awake since the boot.

use std::time::{Duration, SystemTime};

use nix::time::{ClockId, clock_gettime};
use protocol::Timestamp;
use protocol::time::millis;

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
        #[cfg(not(target_os = "macos"))]
        let clock = ClockId::CLOCK_MONOTONIC;
        // There, CLOCK_MONOTONIC also counts time asleep; 8 is CLOCK_UPTIME_RAW.
        #[cfg(target_os = "macos")]
        let clock = ClockId::from_raw(8);
        clock_gettime(clock).map(Duration::from).unwrap_or_default()
    }
}

/// Converts a system time; times before 1970 become 0.
#[must_use]
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::*;

    /// A sleep of the machine that the namespace of the test begins with, in seconds.
    const ASLEEP: u64 = 10_000_000;
    /// Marks a process within that namespace.
    const ROLE: &str = "TEST_AFTER_A_SLEEP";

    /// In a time namespace whose clock of the boot is ahead, as after a suspend. The process is made anew there.
    #[test]
    fn l03_time_asleep_is_not_time_awake() {
        if std::env::var_os(ROLE).is_some() {
            return after_a_sleep();
        }
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(["--time", "--boottime", &ASLEEP.to_string()]);
            command
        };
        let may = unshare().arg("true").output();
        if !may.as_ref().is_ok_and(|output| output.status.success()) {
            let why = format!("skipped: no clocks of its own can be had: {may:?}\n");
            return drop(std::io::stderr().write_all(why.as_bytes()));
        }
        let mut inside = unshare();
        inside.arg(std::env::current_exe().unwrap());
        inside.args(["--exact", "clock::tests::l03_time_asleep_is_not_time_awake"]).env(ROLE, "1");
        let output = inside.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it did run");
    }

    fn after_a_sleep() {
        let since_boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).expect("a clock of Linux"));
        let awake = SystemClock.awake();
        assert!(since_boot >= Duration::from_secs(ASLEEP), "{since_boot:?}: the machine slept");
        let asleep = since_boot.saturating_sub(awake);
        assert!(asleep >= Duration::from_secs(ASLEEP), "{awake:?} awake of {since_boot:?}");
    }
}
