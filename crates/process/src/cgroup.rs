//! Control groups of version 2 (Linux), used as plain directories: what is in one, and how all of it
//! is ended. Where there are none, no [`Subtree`] can be had, and nothing is in any group.

mod find;
mod subtree;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use protocol::ids::Tag;

use crate::handle::Handle;
use crate::identity;

pub use subtree::{Group, Subtree};

/// How long the processes of a group are killed one by one, where the kernel cannot do it at once.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// The processes of a group and of those below it; none of a group that does not exist, or of one that is
/// hidden in another namespace.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn processes(path: &Path) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for group in with_subgroups(path)? {
        pids.extend(members(&group)?);
    }
    Ok(pids)
}

/// Whether a process lives in a group or below it; a zombie does not count. A group that does not exist has none.
///
/// # Errors
/// Where the operating system refuses to say.
pub fn is_populated(path: &Path) -> io::Result<bool> {
    let events = present(fs::read_to_string(path.join("cgroup.events")))?;
    Ok(events.is_some_and(|events| figure(&events, "populated") == Some(1)))
}

/// How many processes of a group and of those below it were ended for want of memory; `None` where nobody counts.
#[must_use]
pub fn oom_kills(path: &Path) -> Option<u64> {
    figure(&fs::read_to_string(path.join("memory.events")).ok()?, "oom_kill")
}

/// Sends a KILL to every process of a group and of those below it, however fast they fork. They end soon
/// after: [`is_populated`] tells when.
///
/// # Errors
/// Where the operating system refuses, or, without its help, some live on after five seconds.
pub fn kill(path: &Path) -> io::Result<()> {
    match write(path, "cgroup.kill", "1") {
        Err(error) if gone(&error) => kill_each(path),
        other => other,
    }
}

/// For kernels before 5.14.
fn kill_each(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pids = processes(path)?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        pids.into_iter().for_each(|pid| kill_one(pid, path));
        std::thread::sleep(PAUSE);
    }
}

/// One that cannot be killed is found again by the next look.
fn kill_one(pid: u32, path: &Path) {
    let Ok(Some(id)) = identity::identify(pid) else { return };
    let inside = |_: &identity::Process| processes(path).is_ok_and(|pids| pids.contains(&pid));
    if let Ok(Some(handle)) = Handle::open_if(id, inside) {
        drop(handle.signal(Signal::SIGKILL));
    }
}

/// Removes a group and those below it. One that does not exist is removed.
///
/// # Errors
/// Where a process is in one of them (`EBUSY`), or the operating system refuses.
pub fn remove(path: &Path) -> io::Result<()> {
    for group in with_subgroups(path)?.iter().rev() {
        present(fs::remove_dir(group))?;
    }
    Ok(())
}

/// Whether a process is in the group of this tag, or below it.
pub(crate) fn has(tag: Tag, pid: u32) -> bool {
    let name = tag.to_string();
    find::group_of(pid).is_ok_and(|group| group.iter().any(|part| part == name.as_str()))
}

/// The group and those below it, each before its own.
fn with_subgroups(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut groups = vec![path.to_owned()];
    let mut at = 0;
    while let Some(group) = groups.get(at) {
        let entries = present(fs::read_dir(group))?;
        let directories = entries.into_iter().flatten().flatten();
        let directories = directories.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.extend(directories.map(|entry| entry.path()).collect::<Vec<_>>());
        at += 1;
    }
    Ok(groups)
}

/// The processes of the group itself.
fn members(group: &Path) -> io::Result<Vec<u32>> {
    match fs::read(group.join("cgroup.procs")) {
        Ok(bytes) => Ok(crate::proc::parse_pids(&bytes).into_iter().filter(|pid| *pid != 0).collect()),
        // A group for threads: the processes are in the one above it.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(Vec::new()),
        other => Ok(present(other)?.map(|_| Vec::new()).unwrap_or_default()),
    }
}

/// Writes into a file of a group, in one piece as the kernel wants it.
fn write(group: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(file))?.write_all(text.as_bytes())
}

/// A figure in a file of lines `NAME FIGURE`.
pub(crate) fn figure(text: &str, name: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(found, _)| *found == name).find_map(|(_, figure)| figure.parse().ok())
}

/// `None` where the group went: while it goes, its files answer that there is no such device.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
#[path = "cgroup_tests.rs"]
mod tests;
