//! A process that a kill ends, with the handle by which it is signalled.

use nix::sys::signal::Signal;
use protocol::ProcId;

use crate::handle::Handle;
use crate::tree::{Evidence, Member, still_belongs};
use crate::{Error, identity, platform};

/// A process to end.
pub(super) struct Target {
    pub(super) member: Member,
    pub(super) handle: Option<Handle>,
    pub(super) ended: bool,
}

impl Target {
    /// Records whether the process has ended.
    pub(super) fn update(&mut self) -> Result<(), Error> {
        self.ended = self.ended
            || match &self.handle {
                Some(handle) => handle.exited()?,
                None => identity::exited(self.member.id).map_err(Error::system("read a process"))?,
            };
        if self.ended {
            self.handle = None;
        }
        Ok(())
    }

    /// Opens a handle, unless the process is no longer a member; the check runs while the handle is open.
    pub(super) fn open_handle(&mut self, evidence: &Evidence) -> Result<Option<&Handle>, Error> {
        if self.handle.is_none() {
            let member = &self.member;
            self.handle = Handle::open_if(member.id, |now| still_belongs(evidence, member, now))?;
        }
        Ok(self.handle.as_ref())
    }
}

/// True for an interactive shell with job control: it ignores TERM and the signals that stop jobs. Not known on macOS.
pub(super) fn is_job_control_shell(id: ProcId) -> bool {
    let ignored = [Signal::SIGTERM, Signal::SIGTSTP, Signal::SIGTTOU];
    ignored.into_iter().all(|signal| platform::ignores(id.pid, signal).unwrap_or(false))
}
