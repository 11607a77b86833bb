//! The outside world as the daemon reaches it: small traits, each with the implementation of the operating
//! system. A simulation gives others, so that the whole daemon runs in one thread, on a clock and with faults
//! that a seed decides.
//!
//! - [`clock`]: wall time, and time awake since the boot. Monotonic time is `tokio::time::Instant`, which a
//!   paused runtime controls.
//! - [`random`]: random bytes and the identifiers made of them.
//! - [`tasks`]: concurrent tasks, and blocking work.
//! - [`processes`]: the process table, terminals, resources of the machine.
//! - [`transport`]: connections of clients.
//! - [`signals`]: requests to end, or to read the configuration again.
//!
//! tmux has its own trait, `tmux::Driver`; the database's disk is a `redb::StorageBackend`. Files other than
//! the database are reached directly.

#![warn(missing_docs)]

pub mod clock;
pub mod processes;
pub mod random;
pub mod signals;
pub mod tasks;
pub mod transport;

use std::pin::Pin;
use std::sync::Arc;

use crate::clock::{Clock, SystemClock};
use crate::processes::{Processes, SystemProcesses};
use crate::random::{Random, SystemRandom};
use crate::tasks::{Tasks, TokioTasks};

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The world of one process.
#[derive(Clone)]
pub struct World {
    /// Wall time, and time awake.
    pub clock: Arc<dyn Clock>,
    /// Random bytes.
    pub random: Arc<dyn Random>,
    /// Concurrent tasks.
    pub tasks: Arc<dyn Tasks>,
    /// Processes and the machine.
    pub processes: Arc<dyn Processes>,
}

impl World {
    /// Returns the world of the operating system.
    pub fn system() -> Self {
        Self {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            tasks: Arc::new(TokioTasks),
            processes: Arc::new(SystemProcesses),
        }
    }
}
