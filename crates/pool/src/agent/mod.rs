//! Agents: their hook reports, their questions and activity, and their usage limits.
//!
//! - `hook_event` handles a report, with the inputs of `hook_inputs`: it updates the open questions (`asks`),
//!   the prompt ([`crate::prompt`]), the conversation, and the end of a usage limit (`usage_limit`).
//! - `activity` derives the activity of agents that report nothing, or not everything, from their output,
//!   their terminal and their `screen`; `transcript` what their own record tells.
//! - `record` folds the events about agents, `lookup` reads it; `state` is volatile.
//! - `former_conversation` ends the facts about a conversation that is replaced.
//! - `dismiss` decides on `dismiss`, `artefacts` keeps the plan and the files of an agent.
//! - `thought` decides on published thoughts.

pub(crate) mod activity;
pub(crate) mod artefacts;
pub(crate) mod asks;
pub(crate) mod dismiss;
pub(crate) mod former_conversation;
pub(crate) mod hook_event;
pub(crate) mod hook_inputs;
pub(crate) mod lookup;
pub(crate) mod record;
pub(crate) mod screen;
pub(crate) mod state;
pub(crate) mod thought;
pub(crate) mod transcript;
pub(crate) mod usage_limit;

pub use activity::{
    AgentObservation, LONG_SILENCE, SILENCE, activity_changed, activity_under_bell, current_activity,
    derive_activity, dialog_activity, is_in_state, waits_for_person,
};
pub use artefacts::Artefacts;
pub use asks::{ask_activity, check_answer, mark_asks_unanswerable, open_asks};
pub use dismiss::{dismiss, keep_bells_answered};
pub use hook_event::{HookOutcome, handle_hook};
pub use hook_inputs::{HookInputs, is_before};
pub use screen::{ScreenReading, ShellMark, TerminalMarks, WindowTitle};
pub use state::Agents;
pub use thought::publish_thought;
pub use transcript::{is_recorded_before, recorded_end, recorded_prompt};
pub use usage_limit::{UNKNOWN_LIMIT_PAUSE, cancel_continue};
