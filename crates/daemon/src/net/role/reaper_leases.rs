//! The leases that a reaper holds over one connection.

use std::collections::BTreeMap;

use protocol::reap::Candidate;
use protocol::{Tag, Token};
use tokio::time::Instant;

use crate::decide::lock::LockGuard;

/// The leases of one connection.
pub(super) struct Leases {
    pub(super) connection: u64,
    pub(super) held: BTreeMap<Token, (LockGuard, Candidate)>,
    /// Deadline of the newest lease: a reaper that hangs does not hold its locks beyond it.
    pub(super) deadline: Option<Instant>,
}

impl Leases {
    pub(super) fn of_connection(connection: u64) -> Self {
        Self { connection, held: BTreeMap::new(), deadline: None }
    }

    /// Returns the lease on the incarnation with this tag.
    pub(super) fn of(&self, tag: Tag) -> Option<(Token, Candidate)> {
        let mut held = self.held.iter();
        held.find_map(|(token, (_, leased))| (leased.tag == tag).then(|| (*token, leased.clone())))
    }

    /// Returns the deadline while a lease is held.
    fn due(&self) -> Option<Instant> {
        self.deadline.filter(|_| !self.held.is_empty())
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }

    /// Returns once a lease is overdue; never without a lease.
    pub(super) async fn overdue(&self) {
        match self.due() {
            Some(deadline) => tokio::time::sleep_until(deadline).await,
            None => std::future::pending().await,
        }
    }
}
