//! Output as text for people and as JSON. Each module imports only from those before it:
//!
//! - `escape`, `hint`, `size`: helpers for text;
//! - `out`, `time`, `table`, `tree`, `progress`: standard output and its building blocks;
//! - `json`: the documents; `resources`, `lifecycle`, `agent`, `lock`, `queue`, `change`: parts as text;
//! - `session`, `status`, `event`: whole sessions, the pool's status and events.

pub(crate) mod agent;
pub(crate) mod change;
pub(crate) mod escape;
pub(crate) mod event;
pub(crate) mod hint;
pub(crate) mod json;
pub(crate) mod lifecycle;
pub(crate) mod lock;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod resources;
pub(crate) mod session;
pub(crate) mod size;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod tree;

#[cfg(test)]
mod snapshot_tests;
