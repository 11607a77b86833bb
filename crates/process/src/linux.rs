//! Linux: `/proc` for reading, pidfds for holding and signalling.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::signal::Signal;
use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::identity::{Process, State};
use crate::proc;

/// Reads a file of a process; `None` where the process went.
fn slurp(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::with_capacity(1024);
    let read = File::open(format!("/proc/{pid}/{name}")).and_then(|mut file| file.read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let (Some(stat), Some(status)) = (slurp(pid, "stat")?, slurp(pid, "status")?) else { return Ok(None) };
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid} is not readable"));
    let uid = proc::parse_uid(&status).ok_or_else(unreadable)?;
    let stat = proc::parse_stat(&stat).ok_or_else(unreadable)?;
    Ok(state(&stat).map(|state| Process {
        id: ProcId { pid: stat.pid, start: stat.start },
        ppid: stat.ppid,
        pgid: stat.pgid,
        sid: stat.sid,
        uid,
        tpgid: stat.tpgid,
        state,
        comm: OsBytes(stat.comm.to_vec()),
    }))
}

/// A first thread that has ended is a zombie though the others run on.
fn state(stat: &proc::Stat<'_>) -> Option<State> {
    match stat.state {
        b'X' | b'x' => None,
        b'Z' if stat.threads <= 1 => Some(State::Zombie),
        b'T' | b't' => Some(State::Stopped),
        _ => Some(State::Running),
    }
}

pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::with_capacity(512);
    for entry in std::fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// Whether the environment that the process was started with has the tag. A process that hides its
/// memory, or has overwritten it, has not.
pub(crate) fn has_tag(pid: u32, tag: Tag) -> bool {
    let entry = format!("POOL_INCARNATION={tag}");
    slurp(pid, "environ").ok().flatten().is_some_and(|environ| proc::has_entry(&environ, entry.as_bytes()))
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
