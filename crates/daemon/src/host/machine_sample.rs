//! A sample of the machine's resources: memory, disk, terminals, and the open files of a tmux server.

use std::path::Path;
use std::time::Duration;

use pool::reap::{MachineUse, Share};
use protocol::ServerId;
use tokio::time::Instant;
use world::processes::Processes;

/// A sample of the machine's resources. Values that the system does not tell are `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MachineSample {
    pub(crate) at: Option<Instant>,
    /// Available memory in bytes.
    pub(crate) memory: Option<u64>,
    /// Free space in bytes on the file system of the state directory.
    pub(crate) disk: Option<u64>,
    /// Free inodes there.
    pub(crate) inodes: Option<u64>,
    /// The sample by which the rules about the machine are judged.
    pub(crate) used: MachineUse,
    /// Pseudo-terminals in use, and their maximum.
    pub(crate) terminals: Option<(u64, u64)>,
    /// Number of starts of sessions that had ended before the sample was taken.
    pub(crate) starts_ended: usize,
    /// The tmux server, with its open files and their maximum.
    server_files: Option<(ServerId, (u64, u64))>,
}

impl MachineSample {
    /// Time since the sample was taken; `None` if none was taken yet.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.at.map(|at| at.elapsed())
    }

    /// Open files of this tmux server, and their maximum.
    pub(crate) fn server_files(&self, server: ServerId) -> Option<(u64, u64)> {
        self.server_files.filter(|(sampled, _)| *sampled == server).map(|(_, files)| files)
    }
}

/// Takes a sample after this many starts have ended. Blocks: it reads the process table and queries the file system.
pub(crate) fn sample(
    processes: &dyn Processes,
    state: &Path,
    (server, starts_ended): (Option<ServerId>, usize),
) -> MachineSample {
    let (available, total) = (processes.available_memory(), processes.total_memory());
    let share = |(available, total): (u64, u64)| Share { used: total.saturating_sub(available), total };
    let used = MachineUse {
        memory: available.zip(total).map(share),
        memory_pressure: processes.memory_pressure(),
        disk: processes.disk_use(state).map(|(used, total)| Share { used, total }),
    };
    MachineSample {
        at: Some(Instant::now()),
        memory: available,
        used,
        disk: processes.free_disk(state),
        inodes: processes.free_inodes(state),
        terminals: processes.terminals(),
        starts_ended,
        server_files: server.and_then(|server| Some((server, open_files(processes, server)?))),
    }
}

fn open_files(processes: &dyn Processes, server: ServerId) -> Option<(u64, u64)> {
    let vitals = processes.resources(server.process)?;
    Some((vitals.open_files?, vitals.open_files_max?))
}
