//! macOS: a kqueue.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use protocol::ids::ProcId;

use super::Ended;
use crate::identity::Glance;
use crate::platform;

/// Knows its processes by number.
#[derive(Debug)]
pub(super) struct Queue {
    queue: Kqueue,
    ids: HashMap<u32, ProcId>,
}

/// The queue holds all.
pub(super) type Held = ();

impl Queue {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { queue: Kqueue::new()?, ids: HashMap::new() })
    }

    /// Watches the number first, then asks whose it is.
    pub(super) fn add(&mut self, id: ProcId) -> io::Result<Option<Held>> {
        if self.ids.contains_key(&id.pid) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        if !self.begin(id.pid)? {
            return Ok(None);
        }
        let found = platform::glance(id.pid);
        if matches!(&found, Ok(Some(now)) if now.id == id && Glance::is_alive(now)) {
            self.ids.insert(id.pid, id);
            return Ok(Some(()));
        }
        self.end(id.pid);
        found.map(|_| None)
    }

    pub(super) fn remove(&mut self, id: ProcId, _held: &Held) {
        self.ids.remove(&id.pid);
        self.end(id.pid);
    }

    pub(super) fn take(
        &mut self,
        held: &mut HashMap<ProcId, Held>,
    ) -> io::Result<Vec<(ProcId, Option<Ended>)>> {
        let mut events = vec![event(0, EvFlags::empty(), FilterFlag::empty()); self.ids.len().max(1)];
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let count = self.queue.kevent(&[], &mut events, Some(now))?;
        let mut taken = Vec::with_capacity(count);
        for event in &events[..count] {
            let known = u32::try_from(event.ident()).ok().and_then(|pid| self.ids.remove(&pid));
            let Some(id) = known else { continue };
            held.remove(&id);
            let told = event.fflags().contains(FilterFlag::NOTE_EXITSTATUS);
            let status = told.then(|| i32::try_from(event.data()).ok()).flatten();
            taken.push((id, status.and_then(Ended::of)));
        }
        Ok(taken)
    }

    /// `false`: it has ended. The status is told of those that the caller may signal.
    fn begin(&self, pid: u32) -> io::Result<bool> {
        for what in [FilterFlag::NOTE_EXIT | FilterFlag::NOTE_EXITSTATUS, FilterFlag::NOTE_EXIT] {
            match self.queue.kevent(&[event(pid, EvFlags::EV_ADD, what)], &mut [], None) {
                Ok(_) => return Ok(true),
                Err(Errno::ESRCH) => return Ok(false),
                Err(Errno::EACCES) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EACCES.into())
    }

    /// There is nothing to end where the process itself has ended and was taken.
    fn end(&self, pid: u32) {
        let _ = self.queue.kevent(&[event(pid, EvFlags::EV_DELETE, FilterFlag::empty())], &mut [], None);
    }
}

fn event(pid: u32, flags: EvFlags, what: FilterFlag) -> KEvent {
    KEvent::new(pid as usize, EventFilter::EVFILT_PROC, flags, what, 0, 0)
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
