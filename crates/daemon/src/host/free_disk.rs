//! Free space on the file system of the database, sampled. New messages are refused before the disk is full,
//! so that the records which settle the old ones can still be written.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout};
use world::processes::Processes;

use crate::host::blocking_pool::{BlockingPool, Purpose};

/// Maximum age of a sample.
const AGE_MAX: Duration = Duration::from_millis(100);

/// Time for which a sender waits for a sample that another one takes.
const SAMPLE_LIMIT: Duration = Duration::from_millis(50);

/// Maximum bytes queued on the basis of one sample.
const BYTES_MAX: u64 = 1 << 20;

/// Free space of a file system, less the bytes queued since it was sampled.
pub(crate) struct FreeDisk {
    dir: PathBuf,
    sample: Mutex<DiskSample>,
    /// Held while a sample is being taken.
    sampling: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct DiskSample {
    free: Option<u64>,
    at: Option<Instant>,
    /// Bytes queued since the sample.
    queued: u64,
}

impl FreeDisk {
    /// Free space of the file system of this directory; nothing is sampled yet.
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, sample: Mutex::default(), sampling: tokio::sync::Mutex::default() }
    }

    /// Samples again if queueing `more` bytes needs it: the last sample is too old, or too much was queued on
    /// it. A file system that does not answer keeps the old sample.
    pub(crate) async fn refresh(&self, blocking: &BlockingPool, processes: Arc<dyn Processes>, more: u64) {
        let is_usable = |sample: &DiskSample| {
            sample.at.is_some_and(|at| at.elapsed() < AGE_MAX)
                && sample.queued.saturating_add(more) <= BYTES_MAX
        };
        if is_usable(&self.lock()) {
            return;
        }
        // One task samples for all that wait: a file system that does not answer holds up one sender for long, and
        // takes one thread.
        let Ok(_sampling) = self.sampling.try_lock() else {
            drop(timeout(SAMPLE_LIMIT, self.sampling.lock()).await);
            return;
        };
        let dir = self.dir.clone();
        let free = blocking.with_timeout(Purpose::Housekeeping, move || processes.free_disk(&dir)).await;
        if let Some(free) = free {
            *self.lock() = DiskSample { free, at: Some(Instant::now()), queued: 0 };
        }
    }

    /// Reserves bytes that are about to be queued. Returns the free bytes before them; `None` if the system
    /// does not tell.
    pub(crate) fn reserve(&self, more: u64) -> Option<u64> {
        let mut sample = self.lock();
        let free = sample.free.map(|free| free.saturating_sub(sample.queued));
        sample.queued = sample.queued.saturating_add(more);
        free
    }

    fn lock(&self) -> MutexGuard<'_, DiskSample> {
        self.sample.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
