//! What the pool knows besides its record. Each feature owns its part, behind methods; all of it is gone when `poold` ends, and
//! found out or decided again by the next one.

use protocol::Timestamp;

use crate::agent::state::Agents;
use crate::lock::user_locks::UserLocks;
use crate::locks::LockTable;
use crate::observe::state::Observed;
use crate::prompt::state::Prompts;
use crate::reap::state::Reaping;
use crate::scheduler::state::Scheduler;
use crate::worker::state::Workers;

/// The volatile half of the pool's state.
#[derive(Debug)]
pub struct Volatile {
    /// tmux as last seen, and the watcher.
    pub observed: Observed,
    /// Reapers, leases, verdicts and findings.
    pub reaping: Reaping,
    /// Sessions in transition, and who waits for a slot.
    pub scheduler: Scheduler,
    /// Prompts on their way into panes.
    pub prompts: Prompts,
    /// Hook reports, pending questions, terminal marks.
    pub agents: Agents,
    /// Connections that work messages, and their leases.
    pub workers: Workers,
    /// Session locks, with those who wait for them.
    pub locks: LockTable,
    /// Leases of the locks that users hold.
    pub user_locks: UserLocks,
    stopping: bool,
}

impl Volatile {
    /// The state at the start of `poold`.
    #[must_use]
    pub fn new(locks: LockTable, now: Timestamp) -> Self {
        Self {
            observed: Observed::new(now),
            reaping: Reaping::new(now),
            scheduler: Scheduler::default(),
            prompts: Prompts::default(),
            agents: Agents::default(),
            workers: Workers::default(),
            locks,
            user_locks: UserLocks::default(),
            stopping: false,
        }
    }

    /// `poold` stops: nothing new is begun.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// True once `poold` stops.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }
}
