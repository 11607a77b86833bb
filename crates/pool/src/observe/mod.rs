//! Observation of tmux. A report of the watcher passes through:
//!
//! 1. `state`: the report is applied to the observed state ([`Observed::update`]).
//! 2. [`suspects`] names the processes that the report does not simply confirm; they are sampled outside the
//!    core.
//! 3. `take_in`: [`reconcile()`] decides on all events, and those are dropped that others' actions overtook.
//!
//! A session is gone only by proof: the proven death of its server; absence from one complete listing
//! together with the end of its init and its program; or absence from two complete listings at least 1 s apart.
//! `foreign` finds the tmux sessions that are not the pool's; `health` tells how well a pane is observed.
//! `tmux_name` tells where tmux has another name for a session, `other_servers` which servers are out of reach.

pub(crate) mod foreign;
pub(crate) mod health;
pub(crate) mod other_servers;
pub(crate) mod reconcile;
pub(crate) mod state;
pub(crate) mod take_in;
pub(crate) mod tmux_name;

pub use foreign::{ForeignSessions, foreign_changes, foreign_sessions, panes_to_adopt};
pub use health::transport_health;
pub use other_servers::{OutOfReach, is_replaced, out_of_reach, server_on_record};
pub use reconcile::{
    ABSENCE_PROOF, DiffScope, Observation, diff_scope, ended_by_tmux, reconcile, unconfirmed_runs,
};
pub use state::{Beginning, Observed, Observer, Peer, Report, Update};
pub use take_in::{
    Findings, ObserveOutcome, REPORT_DELAY_MAX, SuspectRun, Suspects, account_reported, correct_foreground,
    started_programs, suspects, take_in, with_processes,
};
pub use tmux_name::{is_name_taken, is_of_unknown_incarnation, named_in_tmux, tmux_name};
