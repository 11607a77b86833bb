//! Linux: an epoll set of pidfds.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use protocol::ProcId;

use super::ExitStatus;
use crate::info::BasicInfo;
use crate::platform::{self, proc};

/// Bits of the pid in an event's 64-bit word: pids are below 2^22 (`PID_MAX_LIMIT`), and the start time, in
/// clock ticks, reaches 2^42 only after a thousand years.
const PID_BITS: u32 = 22;

#[derive(Debug)]
pub(super) struct Queue(Epoll);

/// The pidfd of a watched process.
pub(super) type Watched = OwnedFd;

impl Queue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Opens the pidfd first, then verifies the identity.
    pub(super) fn add(&mut self, id: ProcId) -> io::Result<Option<Watched>> {
        let word = pack(id).ok_or(io::ErrorKind::InvalidInput)?;
        let Some(fd) = platform::open_process(id.pid)? else { return Ok(None) };
        if !platform::basic_info(id.pid)?.is_some_and(|now| now.id == id && BasicInfo::is_alive(&now)) {
            return Ok(None);
        }
        self.0.add(&fd, EpollEvent::new(EpollFlags::EPOLLIN, word))?;
        Ok(Some(fd))
    }

    /// Explicit, because closing the descriptor does not remove it while a child between fork and exec shares
    /// it.
    pub(super) fn remove(&mut self, _id: ProcId, pidfd: &Watched) {
        let removed = self.0.delete(pidfd);
        debug_assert!(removed.is_ok(), "it was added: {removed:?}");
    }

    pub(super) fn take(
        &mut self,
        watched: &mut HashMap<ProcId, Watched>,
    ) -> io::Result<Vec<(ProcId, Option<ExitStatus>)>> {
        let mut events = vec![EpollEvent::empty(); watched.len().max(1)];
        let count = self.0.wait(&mut events, EpollTimeout::ZERO)?;
        let mut taken = Vec::with_capacity(count);
        for id in events[..count].iter().map(|event| unpack(event.data())) {
            let Some(fd) = watched.remove(&id) else { continue };
            self.remove(id, &fd);
            taken
                .push((id, zombie_status(id).or_else(|| reaped_status(&fd)).and_then(ExitStatus::from_wait)));
        }
        Ok(taken)
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}

fn pack(id: ProcId) -> Option<u64> {
    (id.pid >> PID_BITS == 0 && id.start.leading_zeros() >= PID_BITS)
        .then(|| id.start << PID_BITS | u64::from(id.pid))
}

fn unpack(word: u64) -> ProcId {
    let pid = word & ((1 << PID_BITS) - 1);
    ProcId { pid: pid as u32, start: word >> PID_BITS }
}

/// Reads the wait status of a zombie.
fn zombie_status(id: ProcId) -> Option<i32> {
    // Readable only with permission to trace the process; without it the kernel shows the status as 0.
    std::fs::read_link(format!("/proc/{}/ns/user", id.pid)).ok()?;
    let status = platform::with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        let ended = stat.start == id.start && matches!(stat.state, b'Z' | b'X' | b'x');
        Some(ended.then(|| proc::parse_exit_status(bytes)).flatten())
    });
    status.ok()??
}

/// Reads the wait status of a reaped process from its pidfd, since Linux 6.15.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn reaped_status(pidfd: &OwnedFd) -> Option<i32> {
    // SAFETY: pidfd_info is plain integers, for which zeros are a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: the request carries the size of the structure, which outlives the call.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (done == 0 && info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then_some(info.exit_code)
}
