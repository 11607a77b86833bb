//! Who a process is. The number alone says little: it is reused. Number and start time together
//! name one process for reading; for signalling, take a [`crate::handle::Handle`].

use std::io;

use protocol::ids::ProcId;
use protocol::text::OsBytes;

use crate::platform;
use crate::proc::Image;

/// What a process is doing, as far as ending it is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Runs, sleeps, or waits for the disk.
    Running,
    /// Stopped by a signal or a tracer.
    Stopped,
    /// Has ended and waits for its parent to take note.
    Zombie,
    /// Does not exist, or its number belongs to another process now.
    Gone,
}

/// One process at the moment of reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Which.
    pub id: ProcId,
    /// Its parent; 0 for none.
    pub ppid: u32,
    /// Its process group.
    pub pgid: u32,
    /// Its session; 0 where unknown.
    pub sid: u32,
    /// Its real user id.
    pub uid: u32,
    /// The foreground group of its terminal, where it has one.
    pub tpgid: Option<u32>,
    /// What it is doing; never [`State::Gone`].
    pub state: State,
    /// The program's name as the kernel keeps it, cut to 15 bytes.
    pub comm: OsBytes,
}

/// What the first glance tells of a process, which costs half of a [`Process`] on Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Glance {
    pub(crate) id: ProcId,
    pub(crate) ppid: u32,
    pub(crate) pgid: u32,
    pub(crate) sid: u32,
    pub(crate) tpgid: Option<u32>,
    pub(crate) state: State,
    pub(crate) comm: OsBytes,
    pub(crate) image: Image,
}

impl Glance {
    pub(crate) fn is_alive(&self) -> bool {
        self.state != State::Zombie
    }

    pub(crate) fn with_user(self, uid: u32) -> Process {
        let Self { id, ppid, pgid, sid, tpgid, state, comm, image: _ } = self;
        Process { id, ppid, pgid, sid, uid, tpgid, state, comm }
    }
}

/// What is known of a process number; `None` where no process has it. A zombie is a process.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn read(pid: u32) -> io::Result<Option<Process>> {
    platform::read(pid)
}

/// The identity of the process that has this number; `None` where none has it, or only a zombie.
///
/// # Errors
/// As [`read`].
pub fn identify(pid: u32) -> io::Result<Option<ProcId>> {
    Ok(platform::glance(pid)?.filter(Glance::is_alive).map(|process| process.id))
}

/// The caller.
///
/// # Errors
/// As [`read`]: only where `/proc` is not mounted.
pub fn me() -> io::Result<ProcId> {
    identify(std::process::id())?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// What this very process is doing.
///
/// # Errors
/// As [`read`].
pub fn state(id: ProcId) -> io::Result<State> {
    let found = platform::glance(id.pid)?.filter(|process| process.id == id);
    Ok(found.map_or(State::Gone, |process| process.state))
}

/// Whether this very process has ended.
///
/// # Errors
/// As [`read`].
pub fn exited(id: ProcId) -> io::Result<bool> {
    Ok(matches!(state(id)?, State::Gone | State::Zombie))
}

/// Whether this process runs another file than the one that has this path now: it was replaced since. False where that
/// cannot be told, and of what was started from elsewhere.
#[must_use]
pub fn is_outdated(id: ProcId, path: &std::path::Path) -> bool {
    platform::is_outdated(id.pid, path).unwrap_or(false) && !exited(id).unwrap_or(true)
}

/// Whether the caller ignores this signal, as under `nohup`.
#[must_use]
pub fn i_ignore(signal: nix::sys::signal::Signal) -> bool {
    platform::ignores(std::process::id(), signal).unwrap_or(false)
}

/// A text that differs after each start of the machine: a [`ProcId`] means something only with it.
///
/// # Errors
/// As [`read`].
pub fn boot_id() -> io::Result<String> {
    platform::boot_id()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn i_am_running_and_someone_else_is_not_me() {
        let me = me().unwrap();
        assert_eq!(me.pid, std::process::id());
        assert_eq!(state(me).unwrap(), State::Running);
        let impostor = ProcId { start: me.start + 1, ..me };
        assert_eq!(state(impostor).unwrap(), State::Gone);
        assert!(exited(impostor).unwrap());
    }

    #[test]
    fn a_zombie_has_exited_and_is_then_gone() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let id = identify(child.id()).unwrap().unwrap();
        drop(child.stdin.take());
        while state(id).unwrap() != State::Zombie {
            std::thread::yield_now();
        }
        assert!(exited(id).unwrap());
        assert_eq!(identify(id.pid).unwrap(), None);
        child.wait().unwrap();
        assert_eq!(state(id).unwrap(), State::Gone);
    }

    #[test]
    fn a_boot_has_one_name() {
        assert_eq!(boot_id().unwrap(), boot_id().unwrap());
        assert!(boot_id().unwrap().len() >= 32);
    }
}
