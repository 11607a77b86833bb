//! Capacity of the machine: memory, disk, terminals, open files of a tmux server.

use std::path::Path;
use std::time::Duration;

use protocol::ServerId;
use tokio::time::Instant;

/// A sample of the machine. What is not known is none.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Capacity {
    at: Option<Instant>,
    /// Available memory, in bytes.
    pub(crate) memory: Option<u64>,
    /// Free space on the disk of the state directory, in bytes.
    pub(crate) disk: Option<u64>,
    /// Terminals in use, and the most there may be.
    pub(crate) terminals: Option<(u64, u64)>,
    /// The tmux server, with its open files and the most it may have.
    server_files: Option<(ServerId, (u64, u64))>,
}

impl Capacity {
    /// Time since the sample; none where none was taken yet.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at.map(|at| at.elapsed())
    }

    /// Open files of this tmux server, and the most it may have.
    pub(crate) fn files_of(&self, server: ServerId) -> Option<(u64, u64)> {
        self.server_files.filter(|(of, _)| *of == server).map(|(_, files)| files)
    }
}

/// Takes a sample. Reads the process table and asks the file system.
pub(crate) fn sample(state: &Path, server: Option<ServerId>) -> Capacity {
    Capacity {
        at: Some(Instant::now()),
        memory: process::inspect::machine::available_memory(),
        disk: process::inspect::machine::free_disk(state),
        terminals: process::inspect::machine::terminals(),
        server_files: server.and_then(|server| Some((server, open_files(server)?))),
    }
}

fn open_files(server: ServerId) -> Option<(u64, u64)> {
    let vitals = process::inspect::resources::resources(server.process).ok().flatten()?;
    Some((vitals.open_files?, vitals.open_files_max?))
}
