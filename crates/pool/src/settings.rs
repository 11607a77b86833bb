//! What the configuration tells the core.

use std::collections::BTreeMap;
use std::path::PathBuf;

use protocol::session::Size;

/// What the configuration tells the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How many sessions may have a running incarnation.
    pub max_sessions: usize,
    /// How names are made where none is given.
    pub naming: Naming,
    /// Size of a new terminal.
    pub size: Size,
    /// Below it, each session has a directory named by its id.
    pub sessions_dir: PathBuf,
    /// Agent kinds.
    pub agents: BTreeMap<String, Agent>,
    /// Queues.
    pub queue: crate::queue::Rules,
    /// Time between TERM and KILL, in milliseconds.
    pub grace_ms: u64,
    /// File mode creation mask of what sessions run.
    pub umask: u32,
    /// Which foreign tmux sessions are taken in without being asked for.
    pub adoption: Adoption,
}

/// Which foreign tmux sessions are taken in without being asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adoption {
    /// None.
    Never,
    /// Those whose name begins so.
    Prefix(String),
    /// All.
    All,
}

/// How names are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// Agent, date and time: sortable, unique within a second, then with a number behind.
    Timestamp,
    /// One more than the highest number that is a name.
    Numeric,
}

/// An agent kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Agent {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Added to the environment.
    pub env: BTreeMap<String, String>,
    /// Whether it may see which tmux it runs in.
    pub see_tmux: bool,
}
