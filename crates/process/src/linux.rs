//! Linux: `/proc` for reading, pidfds for holding and signalling.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{SysconfVar, getpgid, sysconf};
use protocol::ids::ProcId;
use protocol::text::OsBytes;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::identity::{Glance, Process, State};
use crate::place::Front;
use crate::proc;
use crate::vitals::Vitals;

/// Longer than any `stat` file: 52 numbers of at most 20 digits and a name of at most 64 bytes.
const PIECE: usize = 2048;
/// What the kernel puts behind the path of a directory that was removed.
const DELETED: &[u8] = b" (deleted)";

/// `None` where the process went.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

fn unreadable(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid} is not readable"))
}

fn open(pid: u32, name: &str) -> io::Result<File> {
    File::open(format!("/proc/{pid}/{name}"))
}

/// Reads a file of a process; `None` where the process went.
pub(crate) fn slurp(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    present(open(pid, name).and_then(|file| {
        let mut bytes = Vec::with_capacity(1024);
        // Through `Take`, which spares the two calls that ask such a file for a size it has not.
        file.take(u64::MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }))
}

/// Reads a file of a process that comes whole in one piece.
fn read_piece<T>(pid: u32, name: &str, parse: impl FnOnce(&[u8]) -> T) -> io::Result<Option<T>> {
    let mut bytes = [0; PIECE];
    let length = present(open(pid, name).and_then(|mut file| file.read(&mut bytes)))?;
    Ok(length.map(|length| parse(&bytes[..length])))
}

pub(crate) fn with_stat<T>(pid: u32, parse: impl FnOnce(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
    let parsed = read_piece(pid, "stat", parse)?;
    parsed.map(|parsed| parsed.ok_or_else(|| unreadable(pid))).transpose()
}

/// Without the user, whom only a second file tells.
pub(crate) fn glance(pid: u32) -> io::Result<Option<Glance>> {
    let seen = with_stat(pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        Some(state(&stat).map(|state| Glance {
            id: ProcId { pid: stat.pid, start: stat.start },
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            tpgid: stat.tpgid,
            state,
            comm: OsBytes(stat.comm.to_vec()),
            image: stat.image,
        }))
    });
    Ok(seen?.flatten())
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let (Some(seen), Some(uid)) = (glance(pid)?, uid(pid)?) else { return Ok(None) };
    Ok(Some(seen.with_user(uid)))
}

/// The real user id.
pub(crate) fn uid(pid: u32) -> io::Result<Option<u32>> {
    let Some(status) = slurp(pid, "status")? else { return Ok(None) };
    proc::parse_uid(&status).map(Some).ok_or_else(|| unreadable(pid))
}

/// A first thread that has ended is a zombie though the others run on.
fn state(stat: &proc::Stat<'_>) -> Option<State> {
    match stat.state {
        b'X' | b'x' => None,
        _ if stat.threads == 0 => None,
        b'Z' if stat.threads == 1 => Some(State::Zombie),
        b'T' | b't' => Some(State::Stopped),
        _ => Some(State::Running),
    }
}

/// The working directory. One that was removed has the path it had: then, and only then, is the
/// kernel's suffix taken off, as a directory's name may end so.
pub(crate) fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    let link = format!("/proc/{pid}/cwd");
    let Some(target) = present(std::fs::read_link(&link))? else { return Ok(None) };
    let mut path = target.into_os_string().into_vec();
    if path.ends_with(DELETED) && present(std::fs::metadata(&link))?.is_some_and(|dir| dir.nlink() == 0) {
        path.truncate(path.len() - DELETED.len());
    }
    Ok(Some(OsBytes(path)))
}

pub(crate) fn argv(pid: u32) -> io::Result<Option<Vec<OsBytes>>> {
    Ok(slurp(pid, "cmdline")?.map(|bytes| proc::parse_cmdline(&bytes)))
}

/// The living leader of a process group, without its `stat`, which costs twice as much: only one that
/// lives has a directory. `None` where this cannot tell, as of another user's.
pub(crate) fn leader(group: u32) -> Option<Front> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(group).ok()?);
    if getpgid(Some(pid)) != Ok(pid) {
        return None;
    }
    let dir = current_dir(group).ok()??;
    let name = |comm: &[u8]| OsBytes(comm.strip_suffix(b"\n").unwrap_or(comm).to_vec());
    Some(Front { command: read_piece(group, "comm", name).ok()??, dir: Some(dir) })
}

/// Some living member of the foreground group of this process's terminal: first it is looked for
/// among those that descend from the process.
pub(crate) fn member(pid: u32, group: u32) -> io::Result<Option<Glance>> {
    let in_group = |pid: u32| glance(pid).ok().flatten().filter(|seen| seen.is_alive() && seen.pgid == group);
    let mut todo = children(pid);
    while let Some(child) = todo.pop() {
        if let Some(found) = in_group(child) {
            return Ok(Some(found));
        }
        todo.extend(children(child));
    }
    Ok(pids()?.into_iter().find_map(in_group))
}

/// Those that each of its threads has started or inherited; none where the kernel does not tell.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read(thread.path().join("children")).ok());
    lists.flat_map(|list| proc::parse_pids(&list)).collect()
}

/// Each figure that the kernel denies is `None`.
pub(crate) fn vitals(id: ProcId) -> io::Result<Option<Vitals>> {
    let open_files = count_files(id.pid);
    let limits = slurp(id.pid, "limits").ok().flatten();
    // After the rest: as the number is still that process's, all of it was about this one.
    let found = with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        Some(state(&stat).filter(|_| stat.start == id.start).map(|state| (state, stat.cpu)))
    })?;
    let found = found.flatten().filter(|(state, _)| *state != State::Zombie);
    Ok(found.map(|(state, ticks)| Vitals {
        state,
        cpu: duration(ticks),
        open_files,
        open_files_max: limits.and_then(|limits| proc::parse_open_files_max(&limits)),
    }))
}

/// Whether standard input or output is a pipe or a socket; not of a process that does not show that.
pub(crate) fn is_piped(pid: u32) -> bool {
    let target = |fd: u32| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok();
    let tied = |path: PathBuf| {
        [&b"pipe:"[..], b"socket:"].iter().any(|kind| path.as_os_str().as_bytes().starts_with(kind))
    };
    [0, 1].into_iter().filter_map(target).any(tied)
}

/// Since Linux 6.2 the size of the directory is their number; before that it is 0.
fn count_files(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    match std::fs::metadata(&path).ok()?.len() {
        0 => std::fs::read_dir(path).ok().map(|entries| entries.count() as u64),
        count => Some(count),
    }
}

pub(crate) fn duration(ticks: u64) -> Duration {
    // 100 on every Linux.
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok());
    Duration::from_millis(ticks.saturating_mul(1000) / per_second.unwrap_or(100).max(1))
}

pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::with_capacity(512);
    for entry in std::fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// The environment that the process was started with, NUL after each entry, unless it hides its memory or
/// has overwritten it.
pub(crate) fn environ(pid: u32) -> io::Result<Option<Vec<u8>>> {
    slurp(pid, "environ")
}

pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// A descriptor of whichever process has the number now; it becomes readable when that one ends.
pub(crate) fn hold(pid: u32) -> io::Result<Option<OwnedFd>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `false`: it has ended.
pub(crate) fn send(fd: &OwnedFd, _id: ProcId, signal: Signal) -> io::Result<bool> {
    let signal = rustix::process::Signal::from_named_raw(signal as i32).ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_send_signal(fd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process ignores this signal.
pub(crate) fn ignores(pid: u32, signal: Signal) -> io::Result<bool> {
    let Some(status) = slurp(pid, "status")? else { return Ok(false) };
    let text = String::from_utf8_lossy(&status);
    let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    Ok(mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1))
}

/// Whether the process runs another file than the one with this path, which is the path that it was started from.
pub(crate) fn is_outdated(pid: u32, path: &std::path::Path) -> io::Result<bool> {
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    let named = std::fs::read_link(&exe)?.into_os_string().into_vec();
    let named = named.strip_suffix(DELETED).unwrap_or(&named);
    let same_place = path.canonicalize()?.as_os_str().as_bytes() == named;
    let (runs, there) = (std::fs::metadata(&exe)?, std::fs::metadata(path)?);
    Ok(same_place && crate::file::id(&runs) != crate::file::id(&there))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zombie_has_no_other_thread_and_one_that_is_released_has_none() {
        let of = |state: char, threads: u32| {
            let text = format!("9 (x) {state} 1 9 9 0 -1 0 0 0 0 0 1 2 0 0 20 0 {threads} 0 8 ");
            super::state(&proc::parse_stat(text.as_bytes())?)
        };
        assert_eq!([of('Z', 1), of('Z', 2)], [Some(State::Zombie), Some(State::Running)]);
        assert_eq!([of('Z', 0), of('S', 0), of('X', 1)], [None; 3]);
        assert_eq!([of('S', 1), of('t', 1)], [Some(State::Running), Some(State::Stopped)]);
    }
}
