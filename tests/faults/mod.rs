//! Faults from outside: killed daemons, a lost tmux, hostile peers, failing disks.

mod clock;
mod crash_points;
mod disks;
mod kills;
mod load;
mod neighbour;
mod peers;
mod queue_points;
mod reaping;
mod refusals;
mod restarts;
mod server;
mod service;
mod sizes;
mod state_dir;
mod strangers;
pub(crate) mod support;
mod sync_order;
