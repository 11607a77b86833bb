//! Waits for conditions, never for a duration.

use std::thread;
use std::time::{Duration, Instant};

/// Deadline of any single condition on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `holds` is true, with pauses that double from 1 to 50 ms.
#[track_caller]
pub(crate) fn wait_until(what: &str, deadline: Duration, mut holds: impl FnMut() -> bool) {
    eventually(what, deadline, || holds().then_some(()));
}

/// Polls until `look` returns a value.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, deadline: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < deadline, "not within {deadline:?}: {what}");
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Number of repetitions: the value of an environment variable, or `usual`.
pub(crate) fn number(variable: &str, usual: usize) -> usize {
    let asked = std::env::var(variable).ok();
    asked.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}
