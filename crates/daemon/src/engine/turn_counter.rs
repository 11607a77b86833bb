//! The number of turns that changed something, for the loops that act on changes. Unlike tokio's `watch`, which
//! wakes its receivers in a random order, it wakes them in the order in which they wait, so that a simulation
//! can repeat a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// The counter; clones share it.
#[derive(Clone, Default)]
pub(crate) struct TurnCounter(Arc<Shared>);

#[derive(Default)]
struct Shared {
    turns: AtomicU64,
    changed: Notify,
}

impl TurnCounter {
    /// Counts a turn.
    pub(crate) fn increment(&self) {
        self.0.turns.fetch_add(1, Ordering::Release);
        self.0.changed.notify_waiters();
    }

    /// Returns a receiver that has seen all turns so far.
    pub(crate) fn subscribe(&self) -> TurnReceiver {
        TurnReceiver { counter: self.clone(), seen: self.count() }
    }

    fn count(&self) -> u64 {
        self.0.turns.load(Ordering::Acquire)
    }
}

/// Waits for turns.
pub(crate) struct TurnReceiver {
    counter: TurnCounter,
    seen: u64,
}

impl TurnReceiver {
    /// Marks all turns so far as seen.
    pub(crate) fn mark_seen(&mut self) {
        self.seen = self.counter.count();
    }

    /// Waits until there is a turn that was not seen. Does not mark it as seen.
    pub(crate) async fn changed(&self) {
        loop {
            let changed = self.counter.0.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.counter.count() != self.seen {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_turn_between_two_waits_is_not_missed() {
        let counter = TurnCounter::default();
        let mut turns = counter.subscribe();
        counter.increment();
        turns.changed().await;
        turns.changed().await;
        turns.mark_seen();
        assert!(timeout(Duration::from_millis(20), turns.changed()).await.is_err());
        let (waits, increments) = (turns.changed(), async { counter.increment() });
        tokio::join!(waits, increments);
    }
}
