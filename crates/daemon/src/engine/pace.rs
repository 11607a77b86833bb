//! The number of pieces of work that go into one turn.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::engine::turn::Job;

/// Most pieces of work in a turn: enough to share a commit, few enough to answer soon.
const BATCH: usize = 256;

/// How long a turn waits for those who came together last time, as a part of what a commit takes; and
/// at most. One client alone never waits.
const GATHER_PART: u32 = 4;

const GATHER_MAX: Duration = Duration::from_micros(500);

/// How long the next piece of work is looked for after a commit before the thread sleeps: who was just
/// answered often asks again at once, and to be woken takes about as long.
const LOOK: Duration = Duration::from_micros(100);

/// How turns went lately.
#[derive(Default)]
pub(crate) struct Pace {
    /// Pieces of work that came together.
    together: usize,
    /// What a commit took.
    pub(super) commit: Duration,
}

impl Pace {
    /// The next piece of work; none where nobody is left who could send one.
    pub(super) fn next(&self, jobs: &mpsc::Receiver<Job>, committed: Instant) -> Option<Job> {
        let until = committed + LOOK;
        while self.together == 1 && Instant::now() < until {
            match jobs.try_recv() {
                Err(mpsc::TryRecvError::Empty) => std::hint::spin_loop(),
                other => return other.ok(),
            }
        }
        jobs.recv().ok()
    }

    /// What waits; where several came together last time, they are waited for a moment: answered
    /// together, they send the next together too, and a commit for each alone would take far longer.
    pub(super) fn gather(&mut self, first: Job, jobs: &mpsc::Receiver<Job>) -> Vec<Job> {
        let mut batch: Vec<Job> = std::iter::once(first).chain(jobs.try_iter()).take(BATCH).collect();
        let deadline = Instant::now() + (self.commit / GATHER_PART).min(GATHER_MAX);
        while batch.len() < self.together {
            let left = deadline.saturating_duration_since(Instant::now());
            match jobs.recv_timeout(left) {
                Ok(job) => {
                    let more = std::iter::once(job).chain(jobs.try_iter()).take(BATCH - batch.len());
                    batch.extend(more);
                }
                Err(_) => break,
            }
        }
        self.together = batch.len();
        batch
    }
}
