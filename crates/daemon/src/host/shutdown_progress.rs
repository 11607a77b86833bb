//! Progress of the daemon's end, for its connections.

use std::sync::atomic::{AtomicU8, Ordering};

use tokio::sync::Notify;

/// A step of the daemon's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    /// The engine ends: it accepts nothing more, and calls that it leaves undecided are not answered.
    Engine = 1,
    /// The engine has ended: connections are closed. Closed earlier, a worker's connection would give its claims back.
    Connections = 2,
}

/// The last step that has begun. Tasks that wait are woken in the order in which they began to wait.
#[derive(Debug, Default)]
pub(crate) struct ShutdownProgress {
    step: AtomicU8,
    begun: Notify,
}

impl ShutdownProgress {
    pub(crate) fn begin(&self, step: Step) {
        self.step.store(step as u8, Ordering::SeqCst);
        self.begun.notify_waiters();
    }

    pub(crate) fn has_begun(&self, step: Step) -> bool {
        self.step.load(Ordering::SeqCst) >= step as u8
    }

    /// Waits until this step is begun.
    pub(crate) async fn reach(&self, step: Step) {
        loop {
            let begun = self.begun.notified();
            tokio::pin!(begun);
            begun.as_mut().enable();
            if self.has_begun(step) {
                return;
            }
            begun.await;
        }
    }
}
