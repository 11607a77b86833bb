//! Locks on sessions that users hold.

pub(crate) mod gate;
pub(crate) mod user_locks;

pub use gate::holds_back;
pub use user_locks::{UserLock, UserLocks};
