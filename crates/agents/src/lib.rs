//! What the pool knows of each kind of agent: how its hooks are wired and what they say, how a prompt has to be written
//! for it, how its screen and its own record of the conversation look. Pure: no clock, no files, no processes.

#![warn(missing_docs)]

pub mod answer;
pub mod install;
pub mod kind;
pub mod payload;
pub mod screen;
pub mod terminal;
pub mod text;
pub mod theme;
pub mod transcript;
pub mod wiring;

pub use kind::{Adapter, Confirm};
