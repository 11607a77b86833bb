//! macOS: libproc and sysctl for reading, a kqueue for holding, kill(2) between two checks for signalling.
#![expect(unsafe_code, reason = "libproc and sysctl have no safe wrapper")]

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::event::{EvFlags, EventFilter, FilterFlag, KEvent, Kqueue};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};
use protocol::ids::ProcId;
use protocol::text::OsBytes;

use crate::identity::{Glance, Process, State};
use crate::place::Front;
use crate::proc::{self, Image};
use crate::vitals::Vitals;

fn number(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// What the kernel tells of a process by the name `what`. `None`: no such process, or one of another
/// user that may not be read.
///
/// # Safety
/// `T` is the structure of integers that belongs to the name.
unsafe fn ask<T>(pid: u32, what: c_int, argument: u64) -> io::Result<Option<T>> {
    // SAFETY: integers, for which zeros are a value.
    let mut answer: T = unsafe { mem::zeroed() };
    let size = mem::size_of::<T>() as c_int;
    let place = (&raw mut answer).cast::<c_void>();
    // SAFETY: the buffer is `size` bytes long and lives over the call.
    let got = unsafe { libc::proc_pidinfo(number(pid)?, what, argument, place, size) };
    if got == size {
        return Ok(Some(answer));
    }
    match Errno::last() {
        Errno::ESRCH | Errno::EPERM => Ok(None),
        error => Err(error.into()),
    }
}

fn info(pid: u32) -> io::Result<Option<libc::proc_bsdinfo>> {
    // The argument 1 asks for zombies too.
    // SAFETY: that is its structure.
    unsafe { ask(pid, libc::PROC_PIDTBSDINFO, 1) }
}

fn start(info: &libc::proc_bsdinfo) -> u64 {
    info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec
}

fn state(info: &libc::proc_bsdinfo) -> State {
    match info.pbi_status {
        libc::SZOMB => State::Zombie,
        libc::SSTOP => State::Stopped,
        _ => State::Running,
    }
}

fn glance_of(pid: u32, info: &libc::proc_bsdinfo) -> io::Result<Glance> {
    let sid = getsid(Some(Pid::from_raw(number(pid)?))).ok().and_then(|sid| u32::try_from(sid.as_raw()).ok());
    Ok(Glance {
        id: ProcId { pid, start: start(info) },
        ppid: info.pbi_ppid,
        pgid: info.pbi_pgid,
        sid: sid.unwrap_or(0),
        tpgid: Some(info.e_tpgid).filter(|group| *group != 0 && *group != u32::MAX),
        state: state(info),
        comm: OsBytes(info.pbi_comm.iter().map(|c| c.cast_unsigned()).take_while(|b| *b != 0).collect()),
        image: Image::Unknown,
    })
}

pub(crate) fn glance(pid: u32) -> io::Result<Option<Glance>> {
    info(pid)?.map(|info| glance_of(pid, &info)).transpose()
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let Some(info) = info(pid)? else { return Ok(None) };
    Ok(Some(glance_of(pid, &info)?.with_user(info.pbi_ruid)))
}

/// The real user id.
pub(crate) fn uid(pid: u32) -> io::Result<Option<u32>> {
    Ok(info(pid)?.map(|info| info.pbi_ruid))
}

/// The working directory; of one that was removed the path it had, where the kernel still knows it.
pub(crate) fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    // SAFETY: that is its structure.
    let found: Option<libc::proc_vnodepathinfo> = unsafe { ask(pid, libc::PROC_PIDVNODEPATHINFO, 0) }?;
    let Some(found) = found else { return Ok(None) };
    let path = found.pvi_cdir.vip_path.as_flattened().iter().map(|c| c.cast_unsigned());
    let path: Vec<u8> = path.take_while(|b| *b != 0).collect();
    Ok((!path.is_empty()).then_some(OsBytes(path)))
}

pub(crate) fn argv(pid: u32) -> io::Result<Option<Vec<OsBytes>>> {
    match arguments(pid) {
        Ok(bytes) => Ok(proc::parse_procargs(&bytes)),
        // So it is answered for a process that does not exist, too.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The living leader of a process group.
pub(crate) fn leader(group: u32) -> Option<Front> {
    let leader = glance(group).ok()??;
    let in_front = leader.pgid == group && leader.is_alive();
    in_front.then(|| Front { command: leader.comm, dir: current_dir(group).ok().flatten() })
}

/// Some living member of the group.
pub(crate) fn member(_pid: u32, group: u32) -> io::Result<Option<Glance>> {
    let in_group = |seen: &Glance| seen.pgid == group && seen.is_alive();
    Ok(pids()?.into_iter().find_map(|pid| glance(pid).ok().flatten().filter(in_group)))
}

/// What this very process was doing, and its figures; `None` where it has ended.
fn task(id: ProcId) -> io::Result<Option<(State, libc::proc_taskinfo)>> {
    // SAFETY: that is its structure.
    let task: Option<libc::proc_taskinfo> = unsafe { ask(id.pid, libc::PROC_PIDTASKINFO, 0) }?;
    // After the figures: as the number is still that process's, they were about this one.
    let info = info(id.pid)?.filter(|info| start(info) == id.start && state(info) != State::Zombie);
    let Some(info) = info else { return Ok(None) };
    Ok(Some((state(&info), task.ok_or(io::ErrorKind::PermissionDenied)?)))
}

fn cpu(task: &libc::proc_taskinfo) -> Duration {
    duration(task.pti_total_user.saturating_add(task.pti_total_system))
}

/// The limit of descriptors is not told of other processes.
pub(crate) fn vitals(id: ProcId) -> io::Result<Option<Vitals>> {
    let open_files = count_files(id.pid);
    let found = task(id)?;
    Ok(found.map(|(state, task)| Vitals { state, cpu: cpu(&task), open_files, open_files_max: None }))
}

/// Resident bytes, and time on a processor; `None` where this very process has ended.
pub(crate) fn memory_and_cpu(id: ProcId) -> io::Result<Option<(u64, Duration)>> {
    Ok(task(id)?.map(|(_, task)| (task.pti_resident_size, cpu(&task))))
}

/// Not read here.
pub(crate) fn is_piped(_pid: u32) -> bool {
    false
}

fn count_files(pid: u32) -> Option<u64> {
    let pid = number(pid).ok()?;
    // SAFETY: with no buffer the call only returns how many bytes would do, with some room.
    let room = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, std::ptr::null_mut(), 0) };
    let mut list = vec![0_u8; usize::try_from(room).ok().filter(|room| *room > 0)?];
    // SAFETY: the buffer is `room` bytes long and lives over the call.
    let got = unsafe {
        libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, list.as_mut_ptr().cast::<c_void>(), room)
    };
    u64::try_from(got / libc::PROC_PIDLISTFD_SIZE).ok().filter(|count| *count > 0)
}

/// The kernel counts in its own ticks: 1 ns on Intel, 125/3 ns on Apple's processors.
#[expect(deprecated, reason = "the crate that libc points to is not worth one function")]
fn duration(ticks: u64) -> Duration {
    let mut scale = libc::mach_timebase_info { numer: 1, denom: 1 };
    // SAFETY: the structure lives over the call, which fills it in and cannot fail.
    unsafe { libc::mach_timebase_info(&raw mut scale) };
    let nanoseconds = u128::from(ticks) * u128::from(scale.numer) / u128::from(scale.denom.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
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

/// What holds the environment that the process was started with, NUL after each entry. Programs protected by
/// the system hide theirs.
pub(crate) fn environ(pid: u32) -> io::Result<Option<Vec<u8>>> {
    match arguments(pid) {
        Ok(bytes) => Ok(Some(bytes)),
        // So it is answered for a process that does not exist, too.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(None),
        Err(error) => Err(error),
    }
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

/// Not told here: only shells are known for it.
pub(crate) fn ignores(pid: u32, _: nix::sys::signal::Signal) -> io::Result<bool> {
    let shells: [&[u8]; 6] = [b"bash", b"zsh", b"sh", b"ksh", b"fish", b"dash"];
    Ok(glance(pid)?.is_some_and(|found| shells.contains(&found.comm.0.as_slice())))
}

/// Not told here.
pub(crate) fn is_outdated(_: u32, _: &std::path::Path) -> io::Result<bool> {
    Ok(false)
}
