//! Delivery of prompts: the way of a queued prompt into an agent's pane, and the proof that it arrived.
//!
//! - `gate` decides whether a prompt may be typed: by the record first, then by a snapshot of the `pane`.
//! - `unconfirmed` decides on further presses of Enter until something confirms the prompt.
//! - `person` tells which prompts only a person can move on.
//! - `keys` tells whether a user has pressed keys in the terminal through the pool, and when anything was typed there.
//! - `shell` tells by the marks of a shell how far a prompt has got in it.
//! - `confirm` decides on the outcome: from the agent's hook reports, or from its end.
//! - `state` is volatile: deliveries under way, and the reasons for which prompts wait.
//!
//! The states of a prompt are drawn in [`crate::queue`].

pub(crate) mod blocked;
pub(crate) mod confirm;
pub(crate) mod gate;
pub(crate) mod keys;
pub(crate) mod pane;
pub(crate) mod person;
pub(crate) mod shell;
pub(crate) mod state;
pub(crate) mod unconfirmed;

pub use blocked::Blocked;
pub use confirm::{abandoned, end_stranded, fail_abandoned, stopped};
pub use gate::{
    LINE_MAX, is_ready_overdue, limit_reason, line_gate, pane_gate, record_gate, usage_limit_dialog,
};
pub use keys::{has_keys_since, keys_age, unheard_ago};
pub use pane::{PaneSnapshot, is_untouched, stands_in_composer};
pub use person::{leave_to_person, left_to_person};
pub use shell::{OutputStart, ShellProgress, shell_progress};
pub use state::{KeyLine, Prompts};
pub use unconfirmed::{NextStep, Unconfirmed, enter_delay};
