//! Requests to sample single sessions before the next round.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use protocol::SessionId;
use tokio::sync::Notify;

/// The sessions that are to be sampled at once.
#[derive(Default)]
pub(crate) struct SampleRequests {
    sessions: Mutex<BTreeSet<SessionId>>,
    asked: Notify,
}

impl SampleRequests {
    /// Has a session sampled at once.
    pub(crate) fn ask(&self, session: SessionId) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session);
        self.asked.notify_one();
    }

    /// Waits until a session is to be sampled. Returns all that are.
    pub(crate) async fn next(&self) -> BTreeSet<SessionId> {
        loop {
            let asked = std::mem::take(&mut *self.sessions.lock().unwrap_or_else(PoisonError::into_inner));
            if !asked.is_empty() {
                return asked;
            }
            self.asked.notified().await;
        }
    }
}
