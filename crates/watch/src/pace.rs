//! How often to look, and how long to wait for `poold`.

use std::time::Duration;

use crate::error::Error;

/// The shortest time between two listings, where they are the only means.
pub(crate) const FLOOR: Duration = Duration::from_millis(250);
/// The longest one, however slow the server.
const CEILING: Duration = Duration::from_secs(5);
/// A listing takes at most one in so many of the server's only thread: 2 %.
const SHARE: u32 = 50;

/// The shortest and the longest time between two sweeps for silent changes.
const SWEEP: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// A sweep takes at most one in so many of the server's only thread: 0.25 %, which leaves some for heartbeats.
const SWEEP_SHARE: u32 = 400;

/// A connection that lasted this long worked; the next loss starts the waiting anew.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The time between two listings, where they are the only means and the last one took `look`.
pub(crate) fn interval(look: Duration) -> Duration {
    look.saturating_mul(SHARE).clamp(FLOOR, CEILING)
}

/// The time between two sweeps, where the last one took `look`.
pub(crate) fn sweep(look: Duration) -> Duration {
    look.saturating_mul(SWEEP_SHARE).clamp(SWEEP.0, SWEEP.1)
}

/// The time until the next try for `poold`: doubles.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF.0)
    }
}

impl Backoff {
    /// Beside another watcher nothing is urgent.
    pub(crate) fn after(&mut self, error: &Error) -> Duration {
        if error.is_second() {
            return BACKOFF.1;
        }
        let pause = self.0;
        self.0 = (pause * 2).min(BACKOFF.1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use protocol::{ErrorCode, Refusal, TransportError};

    use super::*;

    #[test]
    fn a_slow_server_is_asked_less_often() {
        let millis = Duration::from_millis;
        assert_eq!(interval(millis(1)), FLOOR);
        assert_eq!(interval(millis(20)), millis(1000));
        assert_eq!(interval(millis(3000)), CEILING);
        assert_eq!(
            (sweep(millis(5)), sweep(millis(20)), sweep(millis(560))),
            (SWEEP.0, millis(8000), SWEEP.1)
        );
    }

    #[test]
    fn waiting_doubles_to_two_seconds() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> =
            (0..7).map(|_| backoff.after(&Error::Lost(TransportError::Closed)).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        let second = Error::Refused(Refusal::new(ErrorCode::Conflict, "one is enough"));
        assert_eq!(Backoff::default().after(&second), BACKOFF.1);
    }
}
