//! Sessions: their commands, their lifecycle and their records.
//!
//! ```text
//!             new, adopt
//!                 │ SessionCreated: the intent is committed before anything runs
//!                 ▼
//!   ┌─────────► starting ───────────────────────── SessionFailed ───────────────► failed
//!   │             │ SessionLive: its tag is seen, by the launch or in a listing     │
//!   │             ▼                                                                 │
//!   │           live ◄─────────────────────────┐                                    │
//!   │             │ SessionDraining: its       │ SessionLive again:                 │
//!   │             │ program ended; kill, park, │ a client attached before the       │
//!   │             │ drain, restart; a rule;    │ hang-up; the command `before`      │
//!   │             ▼ its pane is missing        │ refused; the missing pane is back  │
//!   │           draining ──────────────────────┘                                    │
//!   │             │ its process tree is proved gone; the reason says where to       │
//!   │             ├─────────────────────┬─────────────────────┐                     │
//!   │             ▼ SessionParked       ▼ SessionStopped      ▼ SessionLost         │
//!   │           parked                stopped               lost                    │
//!   │             │                     │                     │                     │
//!   └─────────────┴─────────────────────┴─────────────────────┴─────────────────────┘
//!     SessionStarting: the next incarnation, with a new tag
//!       parked           by a prompt, attach, restore, restart
//!       lost             by restore, restart, send --wake, [restore] on_start, or the restart policy `always`
//!       stopped, failed  by restart, send --wake, or the restart policy
//!
//!     parked, stopped, lost, failed ── rm, prune, ttl, ephemeral: SessionDeleted
//! ```
//!
//! Slots are held while starting, live or draining, and between the two halves of a restart. A session is
//! *gone* by proof only: see [`crate::observe`].
//!
//! - One file per command, which decides on a request: [`create()`] (`new`), [`adopt()`], [`rename()`],
//!   [`label()`], [`update()`], [`pin()`], [`kill()`], [`restart()`], [`park()`], [`drain()`], `restore`
//!   ([`restore_all`]), `rm` ([`remove()`]). They share `lifecycle`, `drain_progress`, `in_use`, `naming`
//!   and the checks of `input`.
//! - [`resolve()`] finds the session that a user names; [`view()`] shows it.
//! - `launch_job` makes the job that runs in the pane.
//! - By themselves: `restart_budget` (automatic starts), `conversation` (lost conversations), `retention`.

pub(crate) mod adopt;
pub(crate) mod conversation;
pub(crate) mod create;
pub(crate) mod drain;
pub(crate) mod drain_progress;
pub(crate) mod in_use;
pub(crate) mod input;
pub(crate) mod kill;
pub(crate) mod label;
pub(crate) mod launch_job;
pub(crate) mod lifecycle;
pub(crate) mod naming;
pub(crate) mod park;
pub(crate) mod pin;
pub(crate) mod remove;
pub(crate) mod rename;
pub(crate) mod resolve;
pub(crate) mod restart;
pub(crate) mod restart_budget;
pub(crate) mod restore;
pub(crate) mod retention;
pub(crate) mod update;
pub(crate) mod view;

pub use adopt::{
    AdoptTarget, ForeignPane, ForeignProgram, abandon_adoption, adopt, adopt_target, adoption_origin,
    is_being_adopted,
};
pub use conversation::{begin_conversation, replace_conversation};
pub use create::{CreateInputs, CreateOutcome, Creation, checked_size, create, pool_full};
pub use drain::drain;
pub use drain_progress::{drains, is_cut_off, is_drain_unfinished, is_drained};
pub use in_use::{TakenIds, check_files_unused, check_unused, directories_of_others};
pub use input::check_environment;
pub use kill::kill;
pub use label::label;
pub use launch_job::{LaunchInputs, launch_job};
pub use lifecycle::{begin_end, is_restarting, run_ended, still_drains};
pub use naming::renumber;
pub use park::park;
pub use pin::pin;
pub use remove::{REMOVE_HINT, remove};
pub use rename::rename;
pub use resolve::{get, not_found, not_running, resolve};
pub use restart::{NextRun, next_incarnation, restart, restart_fresh};
pub use restart_budget::{
    STARTS_MAX, check_restarts, decide_restarts, fails_each_time, is_held_as_copy, reset_budget,
    spend_restart, will_restart,
};
pub use restore::restore_all;
pub use retention::{past_retention, retention_over};
pub use update::update;
pub use view::{ViewInputs, lifecycle_label, matches_filter, view};
