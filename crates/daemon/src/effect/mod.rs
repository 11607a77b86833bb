//! Effects on the outside world, one each: performed under the session's lock, after the decision is
//! committed.

pub(crate) mod cgroup;
pub(crate) mod chat_history;
pub(crate) mod claimed_job;
pub(crate) mod dialog;
pub(crate) mod last_screen;
pub(crate) mod launch;
pub(crate) mod next_name;
pub(crate) mod park;
pub(crate) mod reap_round;
pub(crate) mod retired_session;
pub(crate) mod slot;
pub(crate) mod tmux_server;
