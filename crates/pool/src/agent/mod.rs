//! Agents: what is on record of them, and what is known besides.

pub(crate) mod record;
pub(crate) mod state;

pub use state::Agents;
