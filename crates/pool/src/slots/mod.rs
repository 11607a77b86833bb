//! Slots: the right to have a running incarnation. Many sessions share few slots.
//!
//! - `wanting` tells which sessions want a slot, `capacity` how many are free; `wait_queue` keeps the order, in which
//!   requests decide by `in_line`.
//! - `eviction` tells which sessions can give theirs up, by the volatile facts of `inputs`; `park` and
//!   `start` record the decisions.
//! - `scheduler` makes all of these decisions after a turn ([`tick`]); `state` is volatile.
//! - `drained` tells which draining sessions are ended, and what the others wait for.
//! - `conversation` delays the decision about an agent that ended instead of resuming.

pub(crate) mod capacity;
pub(crate) mod conversation;
pub(crate) mod drained;
pub(crate) mod eviction;
pub(crate) mod in_line;
pub(crate) mod inputs;
pub(crate) mod park;
pub(crate) mod scheduler;
pub(crate) mod start;
pub(crate) mod state;
pub(crate) mod wait_queue;
pub(crate) mod wanting;

pub use capacity::{free, startable};
pub use conversation::{conversation_checked, is_conversation_unchecked};
pub use drained::drain_waits_for;
pub use eviction::{
    EvictionInputs, EvictionRank, MIN_STAY, QUANTUM, evictable, is_parkable, loss_if_parked, next_to_park,
    over_quantum, past_idle_timeout,
};
pub use in_line::decide_in_line;
pub use park::{park_limited, run_to_hang_up};
pub use scheduler::{Action, Tick, TickInputs, leaving, tick, victim};
pub use start::{RunIdentity, Starter, begin_start, renew_incarnation};
pub use state::{LossSource, Scheduler, StartHold};
pub use wait_queue::{WaitQueue, Waiter, Wanted};
pub use wanting::{next_start, wanting_start};
