//! The volatile half of the state: what is not on record. Each feature owns its part, behind methods. All of
//! it is lost when `poold` ends, and is observed or decided again after the next start.

use protocol::{Tag, Timestamp};

use crate::agent::state::Agents;
use crate::lock::table::LockTable;
use crate::lock::user_locks::UserLocks;
use crate::observe::state::Observed;
use crate::prompt::state::Prompts;
use crate::reap::state::Reaping;
use crate::slots::state::Scheduler;
use crate::worker::state::Workers;

/// The volatile half of the state.
#[derive(Debug)]
pub struct Volatile {
    /// The observed state of tmux, and the watcher.
    pub observed: Observed,
    /// Reapers, leases, verdicts and violations.
    pub reaping: Reaping,
    /// Sessions in transition, and waiters for slots.
    pub scheduler: Scheduler,
    /// Prompts on their way into panes.
    pub prompts: Prompts,
    /// Hook reports, queued questions, terminal marks.
    pub agents: Agents,
    /// Connections that work messages, and their leases.
    pub workers: Workers,
    /// Session locks and their waiters.
    pub locks: LockTable,
    /// Leases of users' locks.
    pub user_locks: UserLocks,
    stopping: bool,
}

impl Volatile {
    /// The state at the start of `poold`.
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

    /// Notes that a person uses these incarnations: is attached, or acts by `keys`, `input` or `resize`.
    pub fn attend(&mut self, tags: impl IntoIterator<Item = Tag>, at: Timestamp) {
        let tags: Vec<Tag> = tags.into_iter().collect();
        self.prompts.attend(tags.iter().copied());
        self.agents.answer_bell(tags, at);
    }

    /// Stops: nothing new is begun from here on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// True once `poold` stops.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }
}
