//! Watches many processes through one descriptor, and reports when and how each of them ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use protocol::ProcId;

#[cfg_attr(target_os = "linux", path = "exits/linux.rs")]
#[cfg_attr(target_os = "macos", path = "exits/macos.rs")]
mod system;

/// Exit status of a process: exactly one of the two fields is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitStatus {
    /// Exit code, 0 to 255, of a process that exited by itself.
    pub code: Option<i32>,
    /// Number of the signal that ended it.
    pub signal: Option<i32>,
}

impl ExitStatus {
    /// Converts a `wait(2)` status; `None` if it reports anything other than an exit.
    fn from_wait(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self { code: Some(libc::WEXITSTATUS(status)), signal: None })
        } else {
            libc::WIFSIGNALED(status).then(|| Self { code: None, signal: Some(libc::WTERMSIG(status)) })
        }
    }
}

/// A set of running processes, children or not, that are watched for their exit. Uses one descriptor per
/// process on Linux, and a single one on macOS.
#[derive(Debug)]
pub struct ExitWatcher {
    queue: system::Queue,
    watched: HashMap<ProcId, system::Watched>,
}

impl ExitWatcher {
    /// Creates an empty set.
    ///
    /// # Errors
    /// The operating system refuses, in particular when it is out of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: system::Queue::new()?, watched: HashMap::new() })
    }

    /// Adds this process; `false`, and no effect, if it has ended already. Idempotent.
    ///
    /// # Errors
    /// The operating system refuses, in particular when it is out of descriptors (`EMFILE`); the process is
    /// then not watched. On macOS also if its pid belonged to a watched process whose exit has not been taken
    /// yet.
    pub fn watch(&mut self, id: ProcId) -> io::Result<bool> {
        if self.watched.contains_key(&id) {
            return Ok(true);
        }
        let watched = self.queue.add(id)?;
        let is_alive = watched.is_some();
        self.watched.extend(watched.map(|watched| (id, watched)));
        Ok(is_alive)
    }

    /// Removes a process: its exit is not reported, not even one that has not been taken yet.
    pub fn forget(&mut self, id: ProcId) {
        if let Some(watched) = self.watched.remove(&id) {
            self.queue.remove(id, &watched);
        }
    }

    /// The number of watched processes.
    pub fn len(&self) -> usize {
        self.watched.len()
    }

    /// True if no process is watched.
    pub fn is_empty(&self) -> bool {
        self.watched.is_empty()
    }

    /// Removes and returns the processes that have ended, with their status if the kernel reports it exactly.
    /// Never blocks.
    ///
    /// # Errors
    /// The operating system refuses; no exit is lost.
    pub fn take(&mut self) -> io::Result<Vec<(ProcId, Option<ExitStatus>)>> {
        self.queue.take(&mut self.watched)
    }
}

impl AsFd for ExitWatcher {
    /// Readable while there are exits to take. Can be polled by another epoll or kqueue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// For tokio's `AsyncFd`.
impl AsRawFd for ExitWatcher {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
