//! Where a process is and what runs there: its working directory, its arguments, and the program in
//! the foreground of its terminal.

use std::io;

use protocol::ids::ProcId;
use protocol::text::OsBytes;

use crate::identity::Glance;
use crate::platform;

/// What the user of a terminal would say is running in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Front {
    /// The program's name as the kernel keeps it, cut to 15 bytes.
    pub command: OsBytes,
    /// Its working directory, as [`current_dir`]; `None` where that is not told, as of another
    /// user's.
    pub dir: Option<OsBytes>,
}

/// The working directory of the process that has this number; `None` where none has it, or only a
/// zombie. A directory that was removed has the path that it had last; whether it exists is for the
/// caller to see.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    platform::current_dir(pid)
}

/// The program in the foreground of this process's terminal: the leader of the foreground group, or
/// any member where the leader has ended. `None`: no terminal, no such process, or nothing in the
/// foreground. For showing only: it is read by number.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn front(pid: u32) -> io::Result<Option<Front>> {
    let Some(process) = platform::glance(pid)? else { return Ok(None) };
    let Some(group) = process.tpgid else { return Ok(None) };
    if group != pid
        && let Some(leader) = platform::leader(group)
    {
        return Ok(Some(leader));
    }
    let in_front = |process: &Glance| process.pgid == group && process.is_alive();
    let leader = if group == pid { Some(process) } else { platform::glance(group)? };
    let found = match leader.filter(in_front) {
        Some(leader) => Some(leader),
        None => platform::member(pid, group)?,
    };
    let dir = |pid| current_dir(pid).ok().flatten();
    Ok(found.map(|process| Front { dir: dir(process.id.pid), command: process.comm }))
}

/// The arguments of this very process, the program first; `None` where it has ended. A program may
/// have rewritten them; in the moment in which it starts another it has none.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn argv(id: ProcId) -> io::Result<Option<Vec<OsBytes>>> {
    let words = platform::argv(id.pid)?;
    // After the reading: as the number is still that process's, the words were its own.
    let lives = platform::glance(id.pid)?.is_some_and(|now| now.id == id && now.is_alive());
    Ok(words.filter(|_| lives))
}

#[cfg(all(test, target_os = "linux"))]
#[path = "place_tests.rs"]
mod tests;
