//! Scheduling of slots: who waits for one, who gets it, who gives it up.

pub(crate) mod conversation;
pub(crate) mod park;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod tick;
pub(crate) mod wait_queue;

pub use conversation::{is_undecided, judged};
pub use park::begin_park;
pub use start::{Identity, Starter, begin_start, renew};
pub use state::Scheduler;
pub use tick::{Action, Inputs, Tick, leaving, tick, victim};
pub use wait_queue::{WaitQueue, Waiter};
