//! Locks on sessions: the right to act on a session, first come, first served.
//!
//! `table` grants them, `user_locks` has the leases of those that users hold, `holders` tells which locks a process
//! holds, `prompts` which prompts are typed under one, and `hold_back` holds back what the pool would do by itself in a
//! session that a user has locked. A user's lock is also part of the session's record, so that it outlives `poold`.

pub(crate) mod hold_back;
pub(crate) mod holders;
pub(crate) mod prompts;
pub(crate) mod table;
pub(crate) mod user_locks;

pub use hold_back::holds_back;
pub use holders::locked_by;
pub use table::{Grant, LockRequest, LockStatus, LockTable, NotHeld, OuterLock, Ticket, WaiterOutcome};
pub use user_locks::{UserLock, UserLocks};
