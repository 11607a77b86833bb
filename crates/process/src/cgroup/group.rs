//! Operations on one control group, by its directory: list its processes, kill them, remove it.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use protocol::Tag;

use super::find;
use crate::handle::Handle;
use crate::identity;
use crate::platform::proc;

/// Time limit for killing the processes of a group one by one, on kernels without `cgroup.kill`.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
const KILL_INTERVAL: Duration = Duration::from_millis(5);

/// Lists the processes of a group and of its descendants; empty for a group that does not exist or is not
/// visible in this namespace.
pub fn processes(path: &Path) -> io::Result<Vec<u32>> {
    let mut pids = Vec::new();
    for group in with_subgroups(path)? {
        pids.extend(members(&group)?);
    }
    Ok(pids)
}

/// True if a process other than a zombie is in the group or in a descendant; false for a group that does not
/// exist.
pub fn is_populated(path: &Path) -> io::Result<bool> {
    let events = present(fs::read_to_string(path.join("cgroup.events")))?;
    Ok(events.is_some_and(|events| flat_keyed_value(&events, "populated") == Some(1)))
}

/// Returns the number of processes of the group and its descendants that the OOM killer ended; `None` without
/// the memory controller.
pub fn oom_kills(path: &Path) -> Option<u64> {
    flat_keyed_value(&fs::read_to_string(path.join("memory.events")).ok()?, "oom_kill")
}

/// Sends KILL to every process of the group and its descendants, however fast they fork. They end shortly
/// after; [`is_populated`] shows when.
///
/// # Errors
/// The operating system refuses, or, on kernels without `cgroup.kill`, some are alive after five seconds.
pub fn kill(path: &Path) -> io::Result<()> {
    match write(path, "cgroup.kill", "1") {
        Err(error) if is_gone(&error) => kill_each(path),
        other => other,
    }
}

/// Kills one process at a time, for kernels before 5.14.
pub(super) fn kill_each(path: &Path) -> io::Result<()> {
    let deadline = Instant::now() + KILL_TIMEOUT;
    loop {
        let pids = processes(path)?;
        if pids.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        pids.into_iter().for_each(|pid| kill_one(pid, path));
        std::thread::sleep(KILL_INTERVAL);
    }
}

/// Kills a process if it is still in the group. Failures are ignored: the next pass finds the process again.
fn kill_one(pid: u32, path: &Path) {
    let Ok(Some(id)) = identity::identify(pid) else { return };
    let inside = |_: &identity::Process| processes(path).is_ok_and(|pids| pids.contains(&pid));
    if let Ok(Some(handle)) = Handle::open_if(id, inside) {
        drop(handle.signal(Signal::SIGKILL));
    }
}

/// Removes a group and its descendants; succeeds if it does not exist.
///
/// # Errors
/// One of the groups has a process (`EBUSY`), or the operating system refuses.
pub fn remove(path: &Path) -> io::Result<()> {
    for group in with_subgroups(path)?.iter().rev() {
        present(fs::remove_dir(group))?;
    }
    Ok(())
}

/// True if the process is in the group named for this tag, or in a descendant.
pub(crate) fn contains(tag: Tag, pid: u32) -> bool {
    let name = tag.to_string();
    find::group_of(pid).is_ok_and(|group| group.iter().any(|part| part == name.as_str()))
}

/// Lists the group and its descendants, parents first.
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

/// Lists the processes of the group itself.
pub(super) fn members(group: &Path) -> io::Result<Vec<u32>> {
    match fs::read(group.join("cgroup.procs")) {
        Ok(bytes) => Ok(proc::parse_pids(&bytes).into_iter().filter(|pid| *pid != 0).collect()),
        // A threaded group: its processes are listed in an ancestor.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => Ok(Vec::new()),
        other => Ok(present(other)?.map(|_| Vec::new()).unwrap_or_default()),
    }
}

/// Writes to a file of a group in a single write, as the kernel requires.
pub(super) fn write(group: &Path, file: &str, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(group.join(file))?.write_all(text.as_bytes())
}

/// Parses a value of a flat keyed file, whose lines are `KEY VALUE`.
pub(crate) fn flat_keyed_value(text: &str, key: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.filter(|(found, _)| *found == key).find_map(|(_, value)| value.parse().ok())
}

/// Maps the errors of a group that has gone to `None`.
pub(super) fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// True if the file or its group does not exist; the files of a group under removal answer `ENODEV`.
pub(super) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}
