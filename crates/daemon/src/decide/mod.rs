//! Decisions within a turn that answer waiting tasks, or need the store. All others are in the core
//! (`crates/pool`).

pub(crate) mod asks;
pub(crate) mod blocked;
pub(crate) mod follow_up;
pub(crate) mod hook;
pub(crate) mod hook_order;
pub(crate) mod idempotency;
pub(crate) mod lock;
pub(crate) mod prompt;
pub(crate) mod queue;
pub(crate) mod usage_limit;
pub(crate) mod worker;
