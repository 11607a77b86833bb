//! Samples of the outside world, one source each: taken outside of the engine, then handed in by a turn.

pub(crate) mod aider_notification;
pub(crate) mod bracketed_paste;
pub(crate) mod conversation;
pub(crate) mod exit_reports;
pub(crate) mod hook_spool;
mod log_marks;
pub(crate) mod machine_capacity;
pub(crate) mod observe;
pub(crate) mod pane_state;
pub(crate) mod past_output;
pub(crate) mod process_exits;
pub(crate) mod programs;
pub(crate) mod quiet;
pub(crate) mod sample_target;
pub(crate) mod sampler;
pub(crate) mod session_sample;
pub(crate) mod tmux_snapshot;
pub(crate) mod transcript;
pub(crate) mod unfinished_line;
pub(crate) mod usage;
pub(crate) mod user_dirs;
