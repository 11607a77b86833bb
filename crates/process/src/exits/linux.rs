//! Linux: an epoll of pidfds.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use protocol::ids::ProcId;

use super::Ended;
use crate::identity::Glance;
use crate::{platform, proc};

/// A number is below 2^22 (`PID_MAX_LIMIT`), and it takes a thousand years to 2^42 clock ticks: an
/// event of the queue has room for both.
const PID_BITS: u32 = 22;

#[derive(Debug)]
pub(super) struct Queue(Epoll);

/// A pidfd.
pub(super) type Held = OwnedFd;

impl Queue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?))
    }

    /// Holds the process first, then asks who it is.
    pub(super) fn add(&mut self, id: ProcId) -> io::Result<Option<Held>> {
        let word = pack(id).ok_or(io::ErrorKind::InvalidInput)?;
        let Some(fd) = platform::hold(id.pid)? else { return Ok(None) };
        if !platform::glance(id.pid)?.is_some_and(|now| now.id == id && Glance::is_alive(&now)) {
            return Ok(None);
        }
        self.0.add(&fd, EpollEvent::new(EpollFlags::EPOLLIN, word))?;
        Ok(Some(fd))
    }

    /// Not left to the closing: a child between fork and exec may have the descriptor too.
    pub(super) fn remove(&mut self, _id: ProcId, held: &Held) {
        let removed = self.0.delete(held);
        debug_assert!(removed.is_ok(), "it was added: {removed:?}");
    }

    pub(super) fn take(
        &mut self,
        held: &mut HashMap<ProcId, Held>,
    ) -> io::Result<Vec<(ProcId, Option<Ended>)>> {
        let mut events = vec![EpollEvent::empty(); held.len().max(1)];
        let count = self.0.wait(&mut events, EpollTimeout::ZERO)?;
        let mut taken = Vec::with_capacity(count);
        for id in events[..count].iter().map(|event| unpack(event.data())) {
            let Some(fd) = held.remove(&id) else { continue };
            self.remove(id, &fd);
            taken.push((id, unreaped(id).or_else(|| reaped(&fd)).and_then(Ended::of)));
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

/// The status that a process which has ended keeps for its parent.
fn unreaped(id: ProcId) -> Option<i32> {
    // Only one who may trace the process may read this link, and sees its status; another sees 0.
    std::fs::read_link(format!("/proc/{}/ns/user", id.pid)).ok()?;
    let status = platform::with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        let ended = stat.start == id.start && matches!(stat.state, b'Z' | b'X' | b'x');
        Some(ended.then(|| proc::parse_exit_status(bytes)).flatten())
    });
    status.ok()??
}

/// The status that the pidfd keeps after the parent took note, since Linux 6.15.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn reaped(pidfd: &OwnedFd) -> Option<i32> {
    // SAFETY: pidfd_info is plain integers, for which zeros are a value.
    let mut info: libc::pidfd_info = unsafe { std::mem::zeroed() };
    info.mask = u64::from(libc::PIDFD_INFO_EXIT);
    // SAFETY: the request carries the size of the structure, which outlives the call.
    let done = unsafe { libc::ioctl(pidfd.as_raw_fd(), libc::PIDFD_GET_INFO, &raw mut info) };
    (done == 0 && info.mask & u64::from(libc::PIDFD_INFO_EXIT) != 0).then_some(info.exit_code)
}
