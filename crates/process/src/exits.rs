//! Tells of many processes when one of them ends, by a single descriptor, and how it ended.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use protocol::ids::ProcId;

#[cfg_attr(target_os = "linux", path = "exits/linux.rs")]
#[cfg_attr(target_os = "macos", path = "exits/macos.rs")]
mod system;

/// How a process ended, in the kernel's words: exactly one of the two is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// The exit code, 0 to 255, of one that ended by itself.
    pub code: Option<i32>,
    /// The number of the signal that ended it.
    pub signal: Option<i32>,
}

impl Ended {
    /// From a status of `wait(2)`; `None` where it speaks of something else than an end.
    fn of(status: i32) -> Option<Self> {
        if libc::WIFEXITED(status) {
            Some(Self { code: Some(libc::WEXITSTATUS(status)), signal: None })
        } else {
            libc::WIFSIGNALED(status).then(|| Self { code: None, signal: Some(libc::WTERMSIG(status)) })
        }
    }
}

/// Processes that are watched, children or not, for as long as they run. It takes one descriptor a
/// process on Linux, and one in all on macOS.
#[derive(Debug)]
pub struct Exits {
    queue: system::Queue,
    held: HashMap<ProcId, system::Held>,
}

impl Exits {
    /// Watches none yet.
    ///
    /// # Errors
    /// Where the operating system refuses, in particular for want of descriptors.
    pub fn new() -> io::Result<Self> {
        Ok(Self { queue: system::Queue::new()?, held: HashMap::new() })
    }

    /// Begins to watch this very process; `false` where it has ended already (then it is not watched).
    /// Watching twice is watching once.
    ///
    /// # Errors
    /// Where the operating system refuses, in particular for want of descriptors (`EMFILE`): then it
    /// is not watched. On macOS also where its number was another's, whose end waits to be taken.
    pub fn watch(&mut self, id: ProcId) -> io::Result<bool> {
        if self.held.contains_key(&id) {
            return Ok(true);
        }
        let held = self.queue.add(id)?;
        let lives = held.is_some();
        self.held.extend(held.map(|held| (id, held)));
        Ok(lives)
    }

    /// Watches it no longer: its end is not told, not even one that waits to be taken.
    pub fn forget(&mut self, id: ProcId) {
        if let Some(held) = self.held.remove(&id) {
            self.queue.remove(id, &held);
        }
    }

    /// How many are watched.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Those that have ended since the last call, each once, and how, where the kernel tells exactly;
    /// they are watched no longer. Never blocks.
    ///
    /// # Errors
    /// Where the operating system refuses; nothing is lost then.
    pub fn take(&mut self) -> io::Result<Vec<(ProcId, Option<Ended>)>> {
        self.queue.take(&mut self.held)
    }
}

impl AsFd for Exits {
    /// Readable as long as there is something to take. Can be polled within another epoll or kqueue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

/// For those who wait for it with tokio.
impl AsRawFd for Exits {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
#[path = "exits_tests.rs"]
mod tests;
