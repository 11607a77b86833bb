//! Output: for people, and as JSON.

pub(crate) mod agent;
pub(crate) mod change;
pub(crate) mod clean;
pub(crate) mod emulate;
pub(crate) mod escape;
pub(crate) mod event;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod life;
pub(crate) mod lock;
pub(crate) mod out;
pub(crate) mod progress;
pub(crate) mod queue;
pub(crate) mod size;
pub(crate) mod status;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod tree;
