//! Intervals of observation, and the back-off of connecting to `poold`.

use std::time::Duration;

use protocol::Backoff;

use crate::error::Error;

/// Shortest time between two listings, if they are the only transport.
pub(crate) const MIN_LISTING_INTERVAL: Duration = Duration::from_millis(250);
/// Longest such time, however slow the server.
const MAX_LISTING_INTERVAL: Duration = Duration::from_secs(5);
/// Divisor of the server's only thread: listings take at most one part in this many (2 %).
const LISTING_SHARE: u32 = 50;

/// Shortest and longest time between two sweeps for changes without notification.
const SWEEP_INTERVAL: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));
/// Divisor of the server's only thread: sweeps take at most one part in this many (0.25 %, which leaves
/// some for heartbeats).
const SWEEP_SHARE: u32 = 400;

/// Life of a connection after which it counts as stable, and its loss restarts the back-off.
pub(crate) const STABLE: Duration = Duration::from_secs(2);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Returns the time between two listings, if they are the only transport and the last one took `took`.
pub(crate) fn listing_interval(took: Duration) -> Duration {
    took.saturating_mul(LISTING_SHARE).clamp(MIN_LISTING_INTERVAL, MAX_LISTING_INTERVAL)
}

/// Returns the time between two sweeps, if the last one took `took`.
pub(crate) fn sweep_interval(took: Duration) -> Duration {
    took.saturating_mul(SWEEP_SHARE).clamp(SWEEP_INTERVAL.0, SWEEP_INTERVAL.1)
}

/// The pauses between attempts to connect to `poold`.
pub(crate) const fn backoff() -> Backoff {
    Backoff::new(BACKOFF.0, BACKOFF.1)
}

/// Returns the pause after this error: the longest one if another watcher serves `poold`, as nothing is urgent then.
pub(crate) fn pause_after(backoff: &mut Backoff, error: &Error) -> Duration {
    if error.is_second() { BACKOFF.1 } else { backoff.pause() }
}

#[cfg(test)]
mod tests {
    use protocol::{Refusal, TransportError};

    use super::*;

    #[test]
    fn a_slow_server_is_asked_less_often() {
        let millis = Duration::from_millis;
        assert_eq!(listing_interval(millis(1)), MIN_LISTING_INTERVAL);
        assert_eq!(listing_interval(millis(20)), millis(1000));
        assert_eq!(listing_interval(millis(3000)), MAX_LISTING_INTERVAL);
        assert_eq!(
            (sweep_interval(millis(5)), sweep_interval(millis(20)), sweep_interval(millis(560))),
            (SWEEP_INTERVAL.0, millis(8000), SWEEP_INTERVAL.1)
        );
    }

    #[test]
    fn waiting_doubles_to_two_seconds() {
        let (mut backoff, lost) = (backoff(), Error::Lost(TransportError::Closed));
        let pauses: Vec<u128> = (0..7).map(|_| pause_after(&mut backoff, &lost).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        let second = Error::Refused(Refusal::conflict("one is enough"));
        assert_eq!(pause_after(&mut super::backoff(), &second), BACKOFF.1);
    }
}
