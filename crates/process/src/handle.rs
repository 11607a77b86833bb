//! Handle of one process: verified when it is opened, and bound to that process even after its pid is reused.
//!
//! On Linux the descriptor is a pidfd, opened before the identity is read, and every signal is sent through
//! it. On macOS it is a kqueue that watches for the exit; a signal is sent by pid between two identity
//! checks, so a race window of microseconds remains.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::unistd::getuid;
use protocol::ProcId;

use crate::info::Process;
use crate::{Error, platform};

/// A verified process that can be signalled and waited for.
#[derive(Debug)]
pub struct Handle {
    id: ProcId,
    fd: OwnedFd,
}

impl Handle {
    /// Opens a handle of this process; `None` if it has ended.
    ///
    /// # Errors
    /// [`Error::Forbidden`] for pid 0, 1 and the caller, [`Error::OtherUser`], or [`Error::System`].
    pub fn open(id: ProcId) -> Result<Option<Self>, Error> {
        Self::open_if(id, |_| true)
    }

    /// Like [`Handle::open`], but only if `wanted` is true of the process, checked once the descriptor is
    /// open.
    pub(crate) fn open_if(id: ProcId, wanted: impl FnOnce(&Process) -> bool) -> Result<Option<Self>, Error> {
        Self::open_by((platform::open_process, platform::read), id, wanted)
    }

    /// Implements [`Handle::open_if`], with the functions that open a descriptor of a pid and read which process has
    /// it.
    fn open_by(
        (open, read): (
            impl FnOnce(u32) -> io::Result<Option<OwnedFd>>,
            impl FnOnce(u32) -> io::Result<Option<Process>>,
        ),
        id: ProcId,
        wanted: impl FnOnce(&Process) -> bool,
    ) -> Result<Option<Self>, Error> {
        if id.pid <= 1 {
            return Err(Error::Forbidden(id.pid));
        }
        let Some(fd) = open(id.pid).map_err(Error::system("hold a process"))? else {
            return Ok(None);
        };
        let handle = Self { id, fd };
        let found = match read(id.pid) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => platform::read_unanswered(id),
            found => found,
        };
        let found = found.map_err(Error::system("read a process"))?;
        // The process is still alive after the read, so the record is of the process behind the descriptor.
        let Some(process) = found.filter(|process| process.id == id && wanted(process)) else {
            return Ok(None);
        };
        if handle.exited()? {
            return Ok(None);
        }
        // Checked last: an earlier process may have had the pid of this one.
        if id.pid == std::process::id() {
            return Err(Error::Forbidden(id.pid));
        }
        if process.uid != getuid().as_raw() {
            return Err(Error::OtherUser(id));
        }
        Ok(Some(handle))
    }

    /// The identity of the process.
    pub fn id(&self) -> ProcId {
        self.id
    }

    /// Sends a signal; `false` if the process has ended.
    ///
    /// # Errors
    /// [`Error::System`], in particular if permission is denied.
    pub fn signal(&self, signal: Signal) -> Result<bool, Error> {
        platform::send(&self.fd, self.id, signal).map_err(Error::system("signal a process"))
    }

    /// True if the process has ended; a zombie has.
    pub fn exited(&self) -> Result<bool, Error> {
        self.wait(Duration::ZERO)
    }

    /// Waits at most `limit` for the process to end; true if it has.
    pub fn wait(&self, limit: Duration) -> Result<bool, Error> {
        wait_for_all(vec![self], limit)
    }
}

/// Waits at most `limit` for all processes to end; true if they have.
pub(crate) fn wait_for_all(mut handles: Vec<&Handle>, limit: Duration) -> Result<bool, Error> {
    let deadline = Instant::now() + limit;
    while !handles.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled: Vec<PollFd<'_>> =
            handles.iter().map(|handle| PollFd::new(handle.fd.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(Error::system("wait for processes")(error)),
        }
        let ended: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ended = ended.into_iter();
        handles.retain(|_| ended.next() == Some(false));
    }
    Ok(true)
}

impl AsFd for Handle {
    /// Readable once the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::process::{Command, Stdio};

    use super::*;
    use crate::identity;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn only_this_very_process_is_signalled() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = identity::identify(child.id()).unwrap().unwrap();
        let impostor = ProcId { start: id.start + 1, ..id };
        assert!(Handle::open(impostor).unwrap().is_none());
        let handle = Handle::open(id).unwrap().unwrap();
        assert!(!handle.exited().unwrap());
        assert!(handle.signal(Signal::SIGKILL).unwrap());
        assert!(handle.wait(LONG).unwrap());
        assert!(Handle::open(id).unwrap().is_none(), "a zombie is not held");
        child.wait().unwrap();
        assert!(!handle.signal(Signal::SIGKILL).unwrap());
        assert!(Handle::open(id).unwrap().is_none());
    }

    #[test]
    fn p01_what_ends_while_it_is_verified_is_not_held() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = identity::identify(child.id()).unwrap().unwrap();
        // Its pid may be another's from here on, with the same start tick: the record read may be of that one.
        let ends = |_: &Process| {
            child.kill().unwrap();
            child.wait().unwrap();
            true
        };
        assert!(Handle::open_if(id, ends).unwrap().is_none());
    }

    #[test]
    fn p01_a_process_is_held_before_it_is_verified() {
        let spawn = || Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let (victim, mut twin) = (RefCell::new(spawn()), spawn());
        let id = identity::identify(victim.borrow().id()).unwrap().unwrap();
        // The pid is the victim's until the first look at it, then that of a twin that began in the same tick.
        let owner = Cell::new(id.pid);
        let reuse = || {
            if owner.replace(twin.id()) == id.pid {
                victim.borrow_mut().kill().unwrap();
                victim.borrow_mut().wait().unwrap();
            }
        };
        let open = |_| {
            let fd = platform::open_process(owner.get());
            reuse();
            fd
        };
        let read = |_| {
            let found = platform::read(owner.get());
            reuse();
            found.map(|found| found.map(|process| Process { id, ..process }))
        };
        assert!(Handle::open_by((open, read), id, |_| true).unwrap().is_none(), "the twin is held");
        twin.kill().unwrap();
        twin.wait().unwrap();
    }

    #[test]
    fn p02_never_pid_one_nor_myself() {
        let me = identity::me().unwrap();
        for pid in [0, 1, me.pid] {
            let id = ProcId { pid, start: me.start };
            assert!(matches!(Handle::open(id), Err(Error::Forbidden(p)) if p == pid), "{pid}");
        }
    }
}
