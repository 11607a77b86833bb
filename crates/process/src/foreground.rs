//! What the user of a terminal would say is running in it.

use std::io;

use protocol::text::OsBytes;

use crate::identity::{Process, State, read};
use crate::platform;

/// The name of the program in the foreground of this process's terminal: the leader of the
/// foreground group, or any member where the leader has ended. `None`: no terminal, no such
/// process, or nothing in the foreground.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn foreground_command(pid: u32) -> io::Result<Option<OsBytes>> {
    let Some(group) = read(pid)?.and_then(|process| process.tpgid) else { return Ok(None) };
    let in_front = |process: &Process| process.pgid == group && process.state != State::Zombie;
    if let Some(leader) = read(group)?.filter(in_front) {
        return Ok(Some(leader.comm));
    }
    let mut processes = platform::pids()?.into_iter().filter_map(|pid| read(pid).ok().flatten());
    Ok(processes.find(in_front).map(|member| member.comm))
}
