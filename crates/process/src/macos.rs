//! macOS: libproc and sysctl for reading, a kqueue for holding, kill(2) between two checks for signalling.
#![expect(unsafe_code, reason = "libproc and sysctl have no safe wrapper")]

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use protocol::ids::{ProcId, Tag};
use protocol::text::OsBytes;

use crate::identity::{Process, State};
use crate::proc;

fn number(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// `None`: no such process, or one of another user that may not be read.
fn info(pid: u32) -> io::Result<Option<libc::proc_bsdinfo>> {
    // SAFETY: proc_bsdinfo is plain integers and arrays of them, for which zeros are a value.
    let mut info: libc::proc_bsdinfo = unsafe { mem::zeroed() };
    let size = mem::size_of::<libc::proc_bsdinfo>() as c_int;
    // The argument 1 asks for zombies too.
    // SAFETY: the buffer is `size` bytes long and lives over the call.
    let got = unsafe {
        libc::proc_pidinfo(number(pid)?, libc::PROC_PIDTBSDINFO, 1, (&raw mut info).cast::<c_void>(), size)
    };
    if got == size {
        return Ok(Some(info));
    }
    match Errno::last() {
        Errno::ESRCH | Errno::EPERM => Ok(None),
        error => Err(error.into()),
    }
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let Some(info) = info(pid)? else { return Ok(None) };
    let sid = getsid(Some(Pid::from_raw(number(pid)?))).ok().and_then(|sid| u32::try_from(sid.as_raw()).ok());
    Ok(Some(Process {
        id: ProcId { pid, start: info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec },
        ppid: info.pbi_ppid,
        pgid: info.pbi_pgid,
        sid: sid.unwrap_or(0),
        uid: info.pbi_ruid,
        tpgid: Some(info.e_tpgid).filter(|group| *group != 0 && *group != u32::MAX),
        state: match info.pbi_status {
            libc::SZOMB => State::Zombie,
            libc::SSTOP => State::Stopped,
            _ => State::Running,
        },
        comm: OsBytes(info.pbi_comm.iter().map(|c| c.cast_unsigned()).take_while(|b| *b != 0).collect()),
    }))
}

pub(crate) fn pids() -> io::Result<Vec<u32>> {
    // SAFETY: with no buffer the call only returns a count.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    // Room for those that start between the two calls.
    let room = usize::try_from(count).map_err(|_| Errno::last())? + 256;
    let mut pids = vec![0_u32; room];
    let bytes = (room * mem::size_of::<u32>()) as c_int;
    // SAFETY: the buffer is `bytes` long and lives over the call.
    let got = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast::<c_void>(), bytes) };
    pids.truncate(usize::try_from(got).map_err(|_| Errno::last())?);
    Ok(pids)
}

/// Whether the environment that the process was started with has the tag. Programs protected by
/// the system hide theirs.
pub(crate) fn has_tag(pid: u32, tag: Tag) -> bool {
    let entry = format!("POOL_INCARNATION={tag}");
    arguments(pid).is_ok_and(|bytes| proc::has_entry(&bytes, entry.as_bytes()))
}

/// The program's path, arguments and environment, NUL after each.
fn arguments(pid: u32) -> io::Result<Vec<u8>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, number(pid)?];
    // ARG_MAX of macOS: arguments and environment are never longer.
    let mut bytes = vec![0_u8; 1 << 20];
    let mut length = bytes.len();
    // SAFETY: the name has three parts, the buffer is `length` bytes long, nothing is set.
    let done = unsafe {
        libc::sysctl(
            name.as_mut_ptr(),
            3,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    Errno::result(done)?;
    bytes.truncate(length);
    Ok(bytes)
}

pub(crate) fn boot_id() -> io::Result<String> {
    let mut bytes = [0_u8; 64];
    let mut length = bytes.len() - 1;
    // SAFETY: the name ends in NUL, the buffer is longer than `length`, nothing is set.
    let done = unsafe {
        let name = c"kern.bootsessionuuid".as_ptr();
        libc::sysctlbyname(name, bytes.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    Errno::result(done)?;
    let text = CStr::from_bytes_until_nul(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.to_string_lossy().into_owned())
}

/// A queue that becomes readable when whichever process has the number now ends.
pub(crate) fn hold(pid: u32) -> io::Result<Option<OwnedFd>> {
    let queue = Kqueue::new()?;
    let (flags, exit) = (EvFlags::EV_ADD, FilterFlag::NOTE_EXIT);
    let watch = KEvent::new(number(pid)? as usize, EventFilter::EVFILT_PROC, flags, exit, 0, 0);
    match queue.kevent(&[watch], &mut [], None) {
        Ok(_) => Ok(Some(queue.into())),
        Err(Errno::ESRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// `false`: it has ended, or ended meanwhile. Between check and signal lies a window of microseconds.
pub(crate) fn send(_fd: &OwnedFd, id: ProcId, signal: Signal) -> io::Result<bool> {
    let alive =
        || Ok::<_, io::Error>(read(id.pid)?.is_some_and(|now| now.id == id && now.state != State::Zombie));
    if !alive()? {
        return Ok(false);
    }
    match kill(Pid::from_raw(number(id.pid)?), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
