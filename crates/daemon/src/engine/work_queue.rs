//! The queue of work for the engine: of its thread, or of a task.

use std::sync::mpsc;

use tokio::sync::mpsc::UnboundedSender;

use crate::engine::turn::Work;

/// The engine takes no more work.
#[derive(Debug)]
pub(crate) struct Stopped;

/// The sending side of the engine's queue. The engine ends when the last one is dropped.
pub(crate) trait WorkQueue: Send + Sync {
    /// Adds work to the queue.
    fn post(&self, work: Work) -> Result<(), Stopped>;
}

impl WorkQueue for mpsc::Sender<Work> {
    fn post(&self, work: Work) -> Result<(), Stopped> {
        self.send(work).map_err(|_| Stopped)
    }
}

impl WorkQueue for UnboundedSender<Work> {
    fn post(&self, work: Work) -> Result<(), Stopped> {
        self.send(work).map_err(|_| Stopped)
    }
}
