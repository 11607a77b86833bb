//! How much room there is where the database is: new messages are refused before the disk is full, so
//! that what is needed to settle the old ones can still be written.

use std::path::Path;
use std::time::Duration;

use pool::deadlines::Mono;

/// How old an answer of the file system may be.
const AGE: Duration = Duration::from_millis(100);
/// Bytes that may be queued before it is asked again.
const BYTES: u64 = 1 << 20;

/// Room on the disk, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    free: Option<u64>,
    asked_at: Option<Mono>,
    queued: u64,
}

impl Disk {
    /// Free bytes that this user may use, before so many more are queued; `None` where the system does not tell.
    pub(crate) fn free(&mut self, state: &Path, more: u64, now: Mono) -> Option<u64> {
        self.queued += more;
        let recent = self.asked_at.is_some_and(|at| at.until(now) < AGE);
        if !recent || self.queued > BYTES {
            self.free = process::machine::free_disk(state);
            (self.asked_at, self.queued) = (Some(now), more);
        }
        self.free
    }
}
