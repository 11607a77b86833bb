//! Waits for conditions, never for a duration.

use std::thread;
use std::time::{Duration, Instant};

/// Deadline of any single condition on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `holds` is true; see [`eventually`].
#[track_caller]
pub(crate) fn wait_until(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) {
    eventually(what, deadline, || holds().then_some(()));
}

/// Longest pause between two polls, each of which may start programs.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Sleeps between two polls of a wait that began then, for a part of the time waited so far: a condition that takes
/// long costs few polls, and none is seen much later than it comes true.
pub(crate) fn pause(began: Instant) {
    thread::sleep((began.elapsed() / 4).clamp(Duration::from_millis(10), PAUSE_MAX));
}

/// Polls until `look` returns a value.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}");
        pause(began);
    }
}

/// Number of repetitions: the value of an environment variable, or `usual`.
pub(crate) fn number(variable: &str, usual: usize) -> usize {
    let asked = std::env::var(variable).ok();
    asked.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}
