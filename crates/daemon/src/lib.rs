//! The shell of `poold`: everything around the pure core (`crates/pool`) that touches the outside world. It
//! connects clients, the watcher and the reaper to the engine, samples the outside world for the core, and
//! performs the effects that the core decides.
//!
//! The layers, from the top. A module imports only from layers further down, and from its own:
//!
//! - `run`: start and end, in order: directories, lock, configuration, database, recovery, socket; only
//!   then tmux. Maintenance without a running daemon.
//! - `net`: connections: accepts a peer, greets it, and serves it in its role (client, watcher, reaper,
//!   subscriber, viewer of output).
//! - `loops`: what the daemon does by itself, one file a feature: delivers prompts, starts sessions,
//!   restores, adopts, expires leases, enforces limits, removes what is old.
//! - `verb`: one file a request, named as in `poolctl`: take the session's lock, decide in a turn, perform
//!   the effect, commit the outcome in a turn.
//! - `effect`: one effect on the outside world each: launch, park, answer a dialog, save a screen, create a
//!   control group.
//! - `sense`: one sample of the outside world each, taken outside of the engine and handed in by a turn:
//!   tmux, screens, logs, transcripts, exits, spooled hooks, capacity.
//! - `decide`: decisions within a turn that need the store or answer waiting tasks. All others are in the
//!   core.
//! - `engine`: the thread that owns the pool and its store, its turns and commits, and the state that all
//!   parts share (`engine::daemon::Daemon`).
//! - `config`: the configuration file and the settings that it gives.
//! - `host`: files, directories, archives, readings of the clocks, blocking work. Knows neither sessions' state
//!   nor the engine.
//!
//! No code outside a turn sees the pool's state. Within a turn nothing blocks: files, processes and tmux are
//! read before it (`sense`) and changed after it (`effect`).
//!
//! The path of a request: `net` decodes it, `verb::dispatch` calls its verb, the verb submits work to the
//! engine by an `EngineHandle`. The engine takes a batch of work,
//! decides each piece, commits the events of all in one transaction, and only then answers, publishes the
//! events to subscribers and wakes the loops.

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

pub use crate::engine::daemon::LoadedConfig;
pub use crate::host::error::DaemonError;
pub use crate::run::maintenance::{Maintenance, maintain};
pub use crate::run::{
    EngineMode, Host, Options, Site, Socket, check_config, open_database, print_config, run, serve,
};
