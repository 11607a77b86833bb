//! Records of one process, as the operating system reports them.

use std::time::Duration;

use protocol::{OsBytes, ProcId};

use crate::platform::proc::Image;

/// Run state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Running, sleeping, or in uninterruptible sleep.
    Running,
    /// Stopped by a signal or a tracer.
    Stopped,
    /// Ended, and not yet reaped by its parent.
    Zombie,
    /// No such process, or its pid belongs to another process now.
    Gone,
}

/// One process at the moment of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Pid and start time.
    pub id: ProcId,
    /// Parent pid; 0 for none.
    pub ppid: u32,
    /// Process group id.
    pub pgid: u32,
    /// Session id; 0 if unknown.
    pub sid: u32,
    /// Real user id.
    pub uid: u32,
    /// Foreground process group of its controlling terminal, if it has one.
    pub tpgid: Option<u32>,
    /// Run state; never [`State::Gone`].
    pub state: State,
    /// Program name as the kernel keeps it, truncated to 15 bytes.
    pub comm: OsBytes,
}

/// A [`Process`] without its user, which saves the second of two reads on Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BasicInfo {
    pub(crate) id: ProcId,
    pub(crate) ppid: u32,
    pub(crate) pgid: u32,
    pub(crate) sid: u32,
    pub(crate) tpgid: Option<u32>,
    pub(crate) state: State,
    pub(crate) comm: OsBytes,
    pub(crate) image: Image,
}

impl Process {
    /// Its identity, unless it is a zombie.
    pub fn living(&self) -> Option<ProcId> {
        (self.state != State::Zombie).then_some(self.id)
    }
}

impl BasicInfo {
    pub(crate) fn is_alive(&self) -> bool {
        self.state != State::Zombie
    }

    pub(crate) fn with_user(self, uid: u32) -> Process {
        let Self { id, ppid, pgid, sid, tpgid, state, comm, image: _ } = self;
        Process { id, ppid, pgid, sid, uid, tpgid, state, comm }
    }
}

/// The program in the foreground of a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreground {
    /// Its process group.
    pub group: u32,
    /// Program name as the kernel keeps it, truncated to 15 bytes.
    pub command: OsBytes,
    /// Working directory, as [`current_dir`](crate::inspect::program::current_dir); `None` if it is not
    /// readable, as for another user's process.
    pub dir: Option<OsBytes>,
}

/// Resource use of a living process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resources {
    /// [`State::Running`] or [`State::Stopped`].
    pub state: State,
    /// CPU time so far, user and system, of all threads; in steps of 10 ms on Linux.
    pub cpu: Duration,
    /// Number of open descriptors; `None` if it is not readable, as for another user's process.
    pub open_files: Option<u64>,
    /// Soft limit of open descriptors, [`u64::MAX`] for unlimited; always `None` on macOS.
    pub open_files_max: Option<u64>,
}
