//! The shell of `poold`: it starts, owns and stops everything around the pure core. The order at
//! start: directories, lock, configuration, database, recovery, socket, ready; only then tmux.

pub mod config;
mod decide;
mod effect;
mod engine;
mod host;
mod loops;
mod net;
mod run;
mod sense;
mod verb;

use process::runtime::crash;

pub use crate::host::fatal::Fatal;
pub use crate::run::maintenance::{Care, care};
pub use crate::run::{Options, check_config, print_config, run};
