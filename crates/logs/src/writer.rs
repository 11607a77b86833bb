//! Whether an incarnation's output is in its log to the end.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use process::log_writer;
use protocol::ids::Tag;

/// How long the log's writer may take to begin.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// How long one that is there may take to write out what a program left behind: its machine may be busy.
const FINISH_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);

/// Waits until the writer is done, as long as it is awaited. It may not even have begun: a program can be faster.
pub fn wait_for_writer(dir: &Path, incarnation: Option<Tag>) {
    let began = Instant::now();
    while is_awaited(dir, incarnation, began.elapsed()) {
        thread::sleep(PAUSE);
    }
}

/// Whether the writer of this incarnation is still waited for after so long: one that is there for longer than one that
/// may never come.
#[must_use]
pub fn is_awaited(dir: &Path, incarnation: Option<Tag>, waited: Duration) -> bool {
    let limit = if log_writer::has_writer(dir) { FINISH_LIMIT } else { BEGIN_LIMIT };
    waited < limit && !is_written(dir, incarnation)
}

/// Whether the writer of this incarnation has begun, and none is there any more.
#[must_use]
pub fn is_written(dir: &Path, incarnation: Option<Tag>) -> bool {
    let entries = || log_writer::times::read(dir).unwrap_or_default();
    let begun = incarnation.is_none_or(|tag| entries().iter().any(|entry| entry.tag == Some(tag)));
    begun && !log_writer::has_writer(dir)
}
