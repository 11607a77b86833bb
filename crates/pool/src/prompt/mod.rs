//! Prompts on their way into panes.

pub(crate) mod state;

pub use state::Prompts;
