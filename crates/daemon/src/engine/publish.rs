//! Publication of commits to the rest of the daemon.

use std::sync::Arc;
use std::time::Duration;

use pool::observe::{Observer, Report};
use protocol::Stamped;
use protocol::tmux::TmuxState;
use tokio::sync::{Notify, broadcast, watch};

use crate::engine::turn_counter::TurnCounter;

/// Events by which a subscriber may lag before it is cut off.
const SUBSCRIBER_BACKLOG: usize = 1024;

/// An observation of tmux, for the engine and for those who follow tmux.
#[derive(Debug, Clone)]
pub(crate) struct ObservedTmux {
    pub(crate) report: Report,
    /// True if the whole server was listed.
    pub(crate) complete: bool,
    /// Time since the observation began.
    pub(crate) age: Duration,
    pub(crate) by: Observer,
}

impl ObservedTmux {
    /// An observation of the whole server by the daemon.
    pub(crate) fn whole(state: TmuxState, age: Duration) -> Self {
        Self { report: Report::Snapshot(state), complete: true, age, by: Observer::Daemon }
    }
}

/// The channels on which commits are published.
#[derive(Clone)]
pub(crate) struct Publisher {
    /// Journaled events in order.
    pub(crate) events: broadcast::Sender<Stamped>,
    /// Observations of tmux in order.
    pub(crate) tmux: broadcast::Sender<Arc<ObservedTmux>>,
    /// Number of turns that changed something.
    pub(crate) turns: TurnCounter,
    /// The error of the store; the daemon then ends.
    pub(crate) failed: watch::Sender<Option<String>>,
    /// Signalled when a deadline is earlier than the next known one.
    pub(crate) timer_changed: Arc<Notify>,
    /// Signalled when the file of the database has another length.
    pub(crate) database_resized: Arc<Notify>,
}

impl Publisher {
    pub(crate) fn new() -> Self {
        Self {
            events: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            tmux: broadcast::channel(SUBSCRIBER_BACKLOG).0,
            turns: TurnCounter::default(),
            failed: watch::channel(None).0,
            timer_changed: Arc::default(),
            database_resized: Arc::default(),
        }
    }
}
