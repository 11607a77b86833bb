//! Tells whether the log of an incarnation is complete, and waits for that.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use process::log_writer;
use protocol::Tag;

/// Maximum time to wait for the writer to start.
const START_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time to wait for a running writer to write the remaining output of the program, on a busy machine.
const FINISH_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if the next incarnation's writer has started: a running writer may be that one.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_millis(500);
/// Pause between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Waits until the log is complete, as long as [`should_wait`] is true. The writer may not have started yet,
/// because a program can end before that.
pub fn wait_for_writer(dir: &Path, incarnation: Option<Tag>) {
    let start = Instant::now();
    while should_wait(dir, incarnation, start.elapsed()) {
        thread::sleep(CHECK_INTERVAL);
    }
}

/// True if the log is incomplete and the timeout has not passed. The timeout is longer for a running writer
/// than for one that may never start, and shorter once the next incarnation writes.
pub fn should_wait(dir: &Path, incarnation: Option<Tag>, waited: Duration) -> bool {
    let timeout = match incarnation {
        Some(tag) if has_successor(dir, tag) => SUCCESSOR_TIMEOUT,
        _ if log_writer::has_writer(dir) => FINISH_TIMEOUT,
        _ => START_TIMEOUT,
    };
    waited < timeout && !is_complete(dir, incarnation)
}

/// True if the output of a later incarnation follows in the log.
fn has_successor(dir: &Path, tag: Tag) -> bool {
    let entries = log_writer::times::read(dir).unwrap_or_default();
    let mut from = entries.iter().skip_while(|entry| entry.tag != Some(tag));
    from.any(|entry| entry.tag.is_some_and(|other| other != tag))
}

/// True if the writer of this incarnation, or any if `None`, has started, and no writer is running.
pub(crate) fn is_complete(dir: &Path, incarnation: Option<Tag>) -> bool {
    let entries = || log_writer::times::read(dir).unwrap_or_default();
    let started = incarnation.is_none_or(|tag| entries().iter().any(|entry| entry.tag == Some(tag)));
    started && !log_writer::has_writer(dir)
}
