//! How often to look, and how long to wait for `poold`.

use std::time::Duration;

use crate::error::Error;

/// The shortest time between two looks: a user who looks at the state sees it as current.
pub(crate) const FLOOR: Duration = Duration::from_millis(250);
/// The longest one, however slow the server.
const CEILING: Duration = Duration::from_secs(5);
/// A look takes at most one in so many of the server's only thread: 2 %.
const SHARE: u32 = 50;

/// A connection that lasted this long worked; the next loss starts the waiting anew.
pub(crate) const SETTLED: Duration = Duration::from_secs(2);
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// The time between two looks, where the last one took `look` and a frame is due every `beat`.
pub(crate) fn interval(look: Duration, beat: Duration) -> Duration {
    (look * SHARE).clamp(FLOOR, CEILING).min(beat)
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
        let beat = Duration::from_secs(60);
        assert_eq!(interval(Duration::from_millis(1), beat), FLOOR);
        assert_eq!(interval(Duration::from_millis(20), beat), Duration::from_secs(1));
        assert_eq!(interval(Duration::from_secs(3), beat), CEILING);
        assert_eq!(interval(Duration::from_secs(3), Duration::from_secs(1)), Duration::from_secs(1));
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
