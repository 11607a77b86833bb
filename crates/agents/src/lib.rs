//! The knowledge about each kind of agent: its hooks, its screen, its transcript, the way in which prompts
//! are typed. Pure: no clock, no files, no processes.
//!
//! Modules in the order of the data. `adapter` names the agents. At a launch, `wiring` configures the agent's
//! hooks for this launch alone; `install` writes them into a user's configuration instead, on request. A hook
//! calls `poolctl hook`, where `payload` translates the agent's JSON into a [`protocol::hook::HookEvent`];
//! the hook of a permission request prints the decision in the form of `answer`. Before a prompt is typed,
//! `screen` finds the composer and open dialogs in a capture of the pane, and `prompt` escapes the text;
//! afterwards `prompt` compares it with the text that a hook reports, in which `attached_images` stand for their
//! paths. Without a report, `transcript` (the agent's own record) and `terminal_marks` (escape sequences in its
//! output) tell what became of it. `theme` has the colours of a repository; `shell_word` quotes for a shell.
//!
//! The words of one agent are in this crate only. The README says how to add an agent.

#![warn(missing_docs)]

pub mod adapter;
pub mod answer;
mod attached_images;
pub mod install;
pub mod payload;
pub mod prompt;
pub mod screen;
mod shell_word;
pub mod terminal_marks;
pub mod theme;
pub mod transcript;
pub mod wiring;

pub use adapter::{Adapter, Confirm};
