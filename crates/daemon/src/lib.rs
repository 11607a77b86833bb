//! The shell of `poold`: it starts, owns and stops everything around the pure core. The order at
//! start: directories, lock, configuration, database, recovery, socket, ready; only then tmux.

mod activity;
mod archive;
mod care;
mod cgroups;
mod clock;
pub mod config;
mod conn;
mod context;
mod delivery;
mod digest;
mod disk_use;
mod ears;
mod endings;
mod engine;
mod fatal;
mod files;
mod gauge;
mod handle;
mod hooks;
mod housekeeping;
mod launch;
mod listen;
mod locking;
mod notify;
mod op;
mod opening;
mod outbox;
mod park;
mod parts;
mod recover;
mod remains;
mod removal;
mod reserve;
mod role;
mod room;
mod short_tmp;
mod slots;
mod slow;
mod stale;
mod start;
mod timeline;
mod verb;
mod view;
mod work;

use process::crash;

pub use care::{Care, care};
pub use fatal::Fatal;
pub use start::{Options, check_config, print_config, run};
