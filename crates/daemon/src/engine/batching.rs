//! The size of batches: how much work goes into one turn.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::engine::turn::Work;

/// Maximum pieces of work in a turn: enough to share a commit, few enough to answer soon.
pub(super) const BATCH_MAX: usize = 256;

/// Maximum wait of a turn for the senders of the last batch, as a fraction of the duration of a commit, and
/// absolute. A single client waits at most once, behind a batch of several.
const GATHER_PART: u32 = 4;
const GATHER_MAX: Duration = Duration::from_micros(500);

/// Time for which the thread spins after a commit before it sleeps: a client that was just answered often
/// asks again at once, and waking the thread takes about as long.
const SPIN: Duration = Duration::from_micros(100);

/// Recent batches, from which the next one is sized.
#[derive(Default)]
pub(crate) struct Batching {
    /// Pieces of work in the last batch.
    last_size: usize,
    /// Duration of the last commit.
    pub(super) commit: Duration,
}

impl Batching {
    /// Returns the next piece of work; `None` if the last sender is gone.
    pub(super) fn next(&self, inbox: &mpsc::Receiver<Work>, committed_at: Instant) -> Option<Work> {
        let until = committed_at + SPIN;
        while self.last_size == 1 && Instant::now() < until {
            match inbox.try_recv() {
                Err(mpsc::TryRecvError::Empty) => std::hint::spin_loop(),
                other => return other.ok(),
            }
        }
        inbox.recv().ok()
    }

    /// Returns the waiting work. If the last batch had several pieces, waits a moment for as many again: clients that
    /// were answered together also send together, and a commit for each would take far longer.
    pub(super) fn gather(&mut self, first: Work, inbox: &mpsc::Receiver<Work>) -> Vec<Work> {
        let mut batch: Vec<Work> = std::iter::once(first).chain(inbox.try_iter()).take(BATCH_MAX).collect();
        let deadline = Instant::now() + (self.commit / GATHER_PART).min(GATHER_MAX);
        while batch.len() < self.last_size {
            let left = deadline.saturating_duration_since(Instant::now());
            match inbox.recv_timeout(left) {
                Ok(work) => {
                    let more = std::iter::once(work).chain(inbox.try_iter()).take(BATCH_MAX - batch.len());
                    batch.extend(more);
                }
                Err(_) => break,
            }
        }
        self.last_size = batch.len();
        batch
    }
}
