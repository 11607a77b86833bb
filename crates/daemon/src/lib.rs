//! The shell of `poold`: it starts, owns and stops everything around the pure core. The order at
//! start: directories, lock, configuration, database, recovery, socket, ready; only then tmux.

mod care;
mod clock;
pub mod config;
mod conn;
mod context;
mod crash;
mod delivery;
mod digest;
mod endings;
mod engine;
mod fatal;
mod files;
mod handle;
mod housekeeping;
mod launch;
mod listen;
mod notify;
mod op;
mod outbox;
mod parts;
mod recover;
mod remains;
mod role;
mod start;
mod verb;
mod view;
mod work;

pub use care::{Care, care};
pub use fatal::Fatal;
pub use start::{Options, check_config, print_config, run};
