//! macOS: a kqueue.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use protocol::ProcId;

use super::ExitStatus;
use crate::info::BasicInfo;
use crate::platform;

/// The kqueue, and the processes in it by pid.
#[derive(Debug)]
pub(super) struct Queue {
    queue: Kqueue,
    ids: HashMap<u32, ProcId>,
}

/// Nothing: the kqueue has all state.
pub(super) type Watched = ();

impl Queue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { queue: Kqueue::new()?, ids: HashMap::new() })
    }

    /// Watches the pid first, then verifies the identity.
    pub(super) fn add(&mut self, id: ProcId) -> io::Result<Option<Watched>> {
        if self.ids.contains_key(&id.pid) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        if !self.register(id.pid)? {
            return Ok(None);
        }
        let found = platform::basic_info(id.pid);
        if matches!(&found, Ok(Some(now)) if now.id == id && BasicInfo::is_alive(now)) {
            self.ids.insert(id.pid, id);
            return Ok(Some(()));
        }
        self.unregister(id.pid);
        found.map(|_| None)
    }

    pub(super) fn remove(&mut self, id: ProcId, _watched: &Watched) {
        self.ids.remove(&id.pid);
        self.unregister(id.pid);
    }

    pub(super) fn take(
        &mut self,
        watched: &mut HashMap<ProcId, Watched>,
    ) -> io::Result<Vec<(ProcId, Option<ExitStatus>)>> {
        let mut events = vec![event(0, EvFlags::empty(), FilterFlag::empty()); self.ids.len().max(1)];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let count = self.queue.kevent(&[], &mut events, Some(now))?;
        let mut taken = Vec::with_capacity(count);
        for event in &events[..count] {
            let known = u32::try_from(event.ident()).ok().and_then(|pid| self.ids.remove(&pid));
            let Some(id) = known else { continue };
            watched.remove(&id);
            let has_status = event.fflags().contains(FilterFlag::NOTE_EXITSTATUS);
            let status = has_status.then(|| i32::try_from(event.data()).ok()).flatten();
            taken.push((id, status.and_then(ExitStatus::from_wait)));
        }
        Ok(taken)
    }

    /// Registers a pid; `false` if it has ended. The kernel reports the status only of processes that the
    /// caller may signal.
    fn register(&self, pid: u32) -> io::Result<bool> {
        for notes in [FilterFlag::NOTE_EXIT | FilterFlag::NOTE_EXITSTATUS, FilterFlag::NOTE_EXIT] {
            match self.queue.kevent(&[event(pid, EvFlags::EV_ADD, notes)], &mut [], None) {
                Ok(_) => return Ok(true),
                Err(Errno::ESRCH) => return Ok(false),
                Err(Errno::EACCES) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EACCES.into())
    }

    /// Unregisters a pid. Fails harmlessly if the process has ended and its event was taken.
    fn unregister(&self, pid: u32) {
        let _ = self.queue.kevent(&[event(pid, EvFlags::EV_DELETE, FilterFlag::empty())], &mut [], None);
    }
}

fn event(pid: u32, flags: EvFlags, notes: FilterFlag) -> KEvent {
    KEvent::new(pid as usize, EventFilter::EVFILT_PROC, flags, notes, 0, 0)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
