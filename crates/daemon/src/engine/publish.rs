//! Publication of commits to the rest of the daemon.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::Sight;
use protocol::Stamped;
use protocol::tmux::TmuxState;
use tokio::sync::{Notify, broadcast, watch};

/// Events that a subscriber may be behind before it is cut off.
const SUBSCRIBER_BACKLOG: usize = 1024;

/// An observation of tmux on its way to the engine, and to those who follow tmux.
#[derive(Debug, Clone)]
pub(crate) struct Sighting {
    pub(crate) sight: Sight,
    /// True if the whole server was looked at.
    pub(crate) complete: bool,
    /// Time since the look began.
    pub(crate) age: Duration,
}

impl Sighting {
    /// The daemon's own look, or a watcher's snapshot.
    pub(crate) fn whole(state: TmuxState, age: Duration) -> Self {
        Self { sight: Sight::Whole(state), complete: true, age }
    }
}

/// Publication of commits.
#[derive(Clone)]
pub(crate) struct Publish {
    /// Journaled events in order.
    pub(crate) events: broadcast::Sender<Stamped>,
    /// Observations of tmux in order.
    pub(crate) observed: broadcast::Sender<Arc<Sighting>>,
    /// Number of turns after which something may have become true.
    pub(crate) turns: watch::Sender<u64>,
    /// The error with which the store failed; the daemon then ends.
    pub(crate) failed: watch::Sender<Option<String>>,
    /// Something has to be done earlier than was known.
    pub(crate) sooner: Arc<Notify>,
}

impl Publish {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            observed: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            turns: watch::channel(0).0,
            failed: watch::channel(None).0,
            sooner: Arc::default(),
        }
    }
}
