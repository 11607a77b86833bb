//! The clocks of the machine: the runtime's paused clock, with an offset that jumps.

use std::sync::Mutex;
use std::time::Duration;

use protocol::Timestamp;
use tokio::time::Instant;
use world::clock::Clock;

/// Wall time at the beginning of each run: 2023-11-14.
const BEGIN_MS: u64 = 1_700_000_000_000;

/// Duration of a boot.
const BOOT: Duration = Duration::from_secs(10);

/// The clocks of the machine.
#[derive(Debug)]
pub(crate) struct SimClock {
    began: Instant,
    booted: Mutex<Instant>,
    /// Milliseconds by which the wall clock was set.
    offset_ms: Mutex<i64>,
}

impl SimClock {
    /// Returns clocks that begin now.
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), booted: Mutex::new(Instant::now()), offset_ms: Mutex::new(0) }
    }

    /// Sets the wall clock by this many milliseconds.
    pub(crate) fn step(&self, by_ms: i64) {
        if let Ok(mut offset) = self.offset_ms.lock() {
            *offset = offset.saturating_add(by_ms);
        }
    }

    /// Begins the time awake anew.
    pub(crate) fn reboot(&self) {
        if let Ok(mut booted) = self.booted.lock() {
            *booted = Instant::now();
        }
    }

    /// Returns the time of the last boot.
    pub(crate) fn booted(&self) -> Instant {
        self.booted.lock().map_or(self.began, |booted| *booted)
    }

    /// Sets the wall clock right, as a time server does.
    pub(crate) fn set_right(&self) {
        if let Ok(mut offset) = self.offset_ms.lock() {
            *offset = 0;
        }
    }

    /// Returns the milliseconds by which the wall clock is wrong.
    fn offset_ms(&self) -> i64 {
        self.offset_ms.lock().map_or(0, |offset| *offset)
    }

    /// Returns the milliseconds since the beginning, which no step changes.
    pub(crate) fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp((BEGIN_MS + self.elapsed_ms()).saturating_add_signed(self.offset_ms()))
    }

    fn awake(&self) -> Duration {
        BOOT + self.booted().elapsed()
    }
}
