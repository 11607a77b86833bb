//! Free space where the database is, sampled: new messages are refused before the disk is full, so that what is needed to
//! settle the old ones can still be written.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::host::blocking;
use crate::host::blocking::Purpose;

/// Greatest age of a sample.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Most bytes that are queued on one sample.
const BYTES_MAX: u64 = 1 << 20;

/// Free space of a file system.
pub(crate) struct DiskRoom {
    dir: PathBuf,
    sample: Mutex<Sample>,
}

#[derive(Default)]
struct Sample {
    free: Option<u64>,
    at: Option<Instant>,
    /// Bytes that were queued since.
    queued: u64,
}

impl DiskRoom {
    /// The room on the file system of this directory.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, sample: Mutex::default() }
    }

    /// Takes a new sample where the last one is too old, or too much was queued on it, to queue `more` bytes. A file system that
    /// does not answer keeps the old sample.
    pub(crate) async fn refresh(&self, more: u64) {
        let is_usable = |sample: &Sample| {
            sample.at.is_some_and(|at| at.elapsed() < AGE_MAX)
                && sample.queued.saturating_add(more) <= BYTES_MAX
        };
        if is_usable(&self.lock()) {
            return;
        }
        let dir = self.dir.clone();
        let free =
            blocking::limited(Purpose::House, move || process::inspect::machine::free_disk(&dir)).await;
        if let Some(free) = free {
            *self.lock() = Sample { free, at: Some(Instant::now()), queued: 0 };
        }
    }

    /// Counts bytes that are about to be queued. Returns the free bytes before them; none where the system does not tell.
    pub(crate) fn take(&self, more: u64) -> Option<u64> {
        let mut sample = self.lock();
        let free = sample.free.map(|free| free.saturating_sub(sample.queued));
        sample.queued = sample.queued.saturating_add(more);
        free
    }

    fn lock(&self) -> MutexGuard<'_, Sample> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
