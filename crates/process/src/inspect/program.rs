//! The program of a process: its working directory, its arguments, and the program in the foreground of its
//! terminal.

use std::io;

use protocol::{OsBytes, ProcId};

use crate::info::BasicInfo;
use crate::platform::{self, proc};

pub use crate::info::Foreground;

/// Returns the working directory of the process that has this pid; `None` if there is none, or only a zombie.
/// A removed directory has its last path, so the caller has to check whether it exists.
pub fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    platform::current_dir(pid)
}

/// Returns the program in the foreground of this process's terminal: the leader of the foreground group, or
/// any member if the leader has ended. `None` without a terminal, a process, or a foreground program. For
/// display only, because it is read by pid.
pub fn foreground(pid: u32) -> io::Result<Option<Foreground>> {
    let Some(process) = platform::basic_info(pid)? else { return Ok(None) };
    let Some(group) = process.tpgid else { return Ok(None) };
    if group != pid
        && let Some(leader) = platform::group_leader(group)
    {
        return Ok(Some(leader));
    }
    let in_group = |process: &BasicInfo| process.pgid == group && process.is_alive();
    let leader = if group == pid { Some(process) } else { platform::basic_info(group)? };
    let found = match leader.filter(in_group) {
        Some(leader) => Some(leader),
        None => platform::group_member(pid, group)?,
    };
    let dir = |pid| current_dir(pid).ok().flatten();
    Ok(found.map(|process| Foreground { group, dir: dir(process.id.pid), command: process.comm }))
}

/// Returns the arguments of this process, the program first; `None` if it has ended. A program can rewrite
/// its arguments; during an exec there are none.
pub fn argv(id: ProcId) -> io::Result<Option<Vec<OsBytes>>> {
    let arguments = platform::argv(id.pid)?;
    // Last: the pid is still this process's, so the arguments were its own.
    let is_alive = platform::basic_info(id.pid)?.is_some_and(|now| now.id == id && now.is_alive());
    Ok(arguments.filter(|_| is_alive))
}

/// Returns the environment that this process was started with; `None` if it has ended.
pub fn environment(id: ProcId) -> io::Result<Option<Vec<(OsBytes, OsBytes)>>> {
    let entries = platform::environ(id.pid)?;
    let is_alive = platform::basic_info(id.pid)?.is_some_and(|now| now.id == id && now.is_alive());
    Ok(entries.filter(|_| is_alive).map(|entries| proc::variables(&entries)))
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
