//! macOS: libproc and sysctl for reading, a kqueue for handles, `kill(2)` after an identity check for
//! signals.
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
use protocol::{OsBytes, ProcId};

use super::proc::{self, Image};
use crate::info::{BasicInfo, Foreground, Process, Resources, State};

fn raw_pid(pid: u32) -> io::Result<c_int> {
    c_int::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Reads the `proc_pidinfo` structure of this flavor. `None` if there is no such process. Denied if it belongs to
/// another user.
///
/// # Safety
/// `T` is the structure of integers that belongs to the flavor.
unsafe fn pid_info<T>(pid: u32, flavor: c_int, argument: u64) -> io::Result<Option<T>> {
    // SAFETY: integers, for which zeros are a value.
    let mut answer: T = unsafe { mem::zeroed() };
    let size = mem::size_of::<T>() as c_int;
    let buffer = (&raw mut answer).cast::<c_void>();
    // SAFETY: the buffer is `size` bytes long and outlives the call.
    let got = unsafe { libc::proc_pidinfo(raw_pid(pid)?, flavor, argument, buffer, size) };
    if got == size {
        return Ok(Some(answer));
    }
    match Errno::last() {
        Errno::ESRCH => Ok(None),
        error => Err(error.into()),
    }
}

fn info(pid: u32) -> io::Result<Option<libc::proc_bsdinfo>> {
    // The argument 1 includes zombies.
    // SAFETY: proc_bsdinfo is the structure of this flavor.
    unsafe { pid_info(pid, libc::PROC_PIDTBSDINFO, 1) }
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

fn basic_info_from(pid: u32, info: &libc::proc_bsdinfo) -> io::Result<BasicInfo> {
    let sid =
        getsid(Some(Pid::from_raw(raw_pid(pid)?))).ok().and_then(|sid| u32::try_from(sid.as_raw()).ok());
    Ok(BasicInfo {
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

/// Reads a process whose memory does not answer. Everything except its environment and arguments is available without
/// it.
pub(crate) fn unanswered_info(pid: u32) -> io::Result<Option<BasicInfo>> {
    basic_info(pid)
}

/// Reads the process of this identity while its memory does not answer.
pub(crate) fn read_unanswered(id: ProcId) -> io::Result<Option<Process>> {
    read(id.pid)
}

/// Always false: macOS does not report signal dispositions.
pub(crate) fn outlives_term_only(_: u32) -> io::Result<bool> {
    Ok(false)
}

pub(crate) fn basic_info(pid: u32) -> io::Result<Option<BasicInfo>> {
    info(pid)?.map(|info| basic_info_from(pid, &info)).transpose()
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let Some(info) = info(pid)? else { return Ok(None) };
    Ok(Some(basic_info_from(pid, &info)?.with_user(info.pbi_ruid)))
}

/// Reads the real user id.
pub(crate) fn uid(pid: u32) -> io::Result<Option<u32>> {
    Ok(info(pid)?.map(|info| info.pbi_ruid))
}

/// Reads the working directory; a removed one has its last path, if the kernel still knows it.
pub(crate) fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    // SAFETY: proc_vnodepathinfo is the structure of this flavor.
    let found: Option<libc::proc_vnodepathinfo> = unsafe { pid_info(pid, libc::PROC_PIDVNODEPATHINFO, 0) }?;
    let Some(found) = found else { return Ok(None) };
    let path = found.pvi_cdir.vip_path.as_flattened().iter().map(|c| c.cast_unsigned());
    let path: Vec<u8> = path.take_while(|b| *b != 0).collect();
    Ok((!path.is_empty()).then_some(OsBytes(path)))
}

pub(crate) fn argv(pid: u32) -> io::Result<Option<Vec<OsBytes>>> {
    match arguments(pid) {
        Ok(bytes) => Ok(proc::parse_procargs(&bytes)),
        // Also the kernel's answer for a process that does not exist.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads the living leader of a process group.
pub(crate) fn group_leader(group: u32) -> Option<Foreground> {
    let leader = basic_info(group).ok()??;
    let in_group = leader.pgid == group && leader.is_alive();
    in_group.then(|| Foreground { group, command: leader.comm, dir: current_dir(group).ok().flatten() })
}

/// Finds a living member of a process group.
pub(crate) fn group_member(_pid: u32, group: u32) -> io::Result<Option<BasicInfo>> {
    let in_group = |info: &BasicInfo| info.pgid == group && info.is_alive();
    Ok(pids()?.into_iter().find_map(|pid| basic_info(pid).ok().flatten().filter(in_group)))
}

/// Reads the state and the task figures of this process; `None` if it has ended.
fn task(id: ProcId) -> io::Result<Option<(State, libc::proc_taskinfo)>> {
    // SAFETY: proc_taskinfo is the structure of this flavor.
    let task: Option<libc::proc_taskinfo> = unsafe { pid_info(id.pid, libc::PROC_PIDTASKINFO, 0) }?;
    // This is read after the figures: if the pid still belongs to this process, the figures were about it.
    let info = info(id.pid)?.filter(|info| start(info) == id.start && state(info) != State::Zombie);
    let Some(info) = info else { return Ok(None) };
    Ok(Some((state(&info), task.ok_or(io::ErrorKind::PermissionDenied)?)))
}

fn cpu(task: &libc::proc_taskinfo) -> Duration {
    duration(task.pti_total_user.saturating_add(task.pti_total_system))
}

/// Reads the resource use; the descriptor limit of another process is not available.
pub(crate) fn resources(id: ProcId) -> io::Result<Option<Resources>> {
    let open_files = count_files(id.pid);
    let found = task(id)?;
    Ok(found.map(|(state, task)| Resources { state, cpu: cpu(&task), open_files, open_files_max: None }))
}

/// Reads the resident bytes and the CPU time; `None` if this process has ended.
pub(crate) fn memory_and_cpu(id: ProcId) -> io::Result<Option<(u64, Duration)>> {
    Ok(task(id)?.map(|(_, task)| (task.pti_resident_size, cpu(&task))))
}

/// Always false: not read on macOS.
pub(crate) fn is_piped(_pid: u32) -> bool {
    false
}

fn count_files(pid: u32) -> Option<u64> {
    let pid = raw_pid(pid).ok()?;
    // SAFETY: without a buffer the call only returns the required size, with some reserve.
    let room = unsafe { libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, std::ptr::null_mut(), 0) };
    let mut list = vec![0_u8; usize::try_from(room).ok().filter(|room| *room > 0)?];
    // SAFETY: the buffer is `room` bytes long and outlives the call.
    let got = unsafe {
        libc::proc_pidinfo(pid, libc::PROC_PIDLISTFDS, 0, list.as_mut_ptr().cast::<c_void>(), room)
    };
    u64::try_from(got / libc::PROC_PIDLISTFD_SIZE).ok().filter(|count| *count > 0)
}

/// Converts mach ticks: 1 ns on Intel, 125/3 ns on Apple silicon.
#[expect(deprecated, reason = "libc's suggested replacement crate is not worth one function")]
fn duration(ticks: u64) -> Duration {
    let mut scale = libc::mach_timebase_info { numer: 1, denom: 1 };
    // SAFETY: the structure outlives the call, which fills it in and cannot fail.
    unsafe { libc::mach_timebase_info(&raw mut scale) };
    let nanoseconds = u128::from(ticks) * u128::from(scale.numer) / u128::from(scale.denom.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// Lists all pids.
pub(crate) fn pids() -> io::Result<Vec<u32>> {
    // SAFETY: without a buffer the call only returns a count.
    let count = unsafe { libc::proc_listallpids(std::ptr::null_mut(), 0) };
    // Reserve for processes that start between the two calls.
    let room = usize::try_from(count).map_err(|_| Errno::last())? + 256;
    let mut pids = vec![0_u32; room];
    let bytes = (room * mem::size_of::<u32>()) as c_int;
    // SAFETY: the buffer is `bytes` long and outlives the call.
    let got = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast::<c_void>(), bytes) };
    pids.truncate(usize::try_from(got).map_err(|_| Errno::last())?);
    Ok(pids)
}

/// Lists all pids: these processes and their descendants are among them.
pub(crate) fn pids_below(_roots: &[u32]) -> io::Result<Vec<u32>> {
    pids()
}

/// Reads a block that contains the environment that the process was started with, a NUL after each entry.
/// Programs protected by the system hide theirs.
pub(crate) fn environ(pid: u32) -> io::Result<Option<Vec<u8>>> {
    match arguments(pid) {
        Ok(bytes) => Ok(Some(bytes)),
        // Also the kernel's answer for a process that does not exist.
        Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Attempts to read the arguments of a process that is just executing a program, and the pause between two: the kernel
/// answers EIO then.
const EXEC_ATTEMPTS: u32 = 10;
const EXEC_PAUSE: Duration = Duration::from_millis(1);

/// Reads the program's path, arguments and environment, a NUL after each. Denied if the kernel cannot read them for
/// long.
fn arguments(pid: u32) -> io::Result<Vec<u8>> {
    let is_unread = |error: &io::Error| error.raw_os_error() == Some(Errno::EIO as i32);
    for _ in 0..EXEC_ATTEMPTS {
        match read_arguments(pid) {
            Err(error) if is_unread(&error) => std::thread::sleep(EXEC_PAUSE),
            found => return found,
        }
    }
    Err(io::ErrorKind::PermissionDenied.into())
}

fn read_arguments(pid: u32) -> io::Result<Vec<u8>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, raw_pid(pid)?];
    // ARG_MAX of macOS, the limit of arguments and environment together.
    let mut bytes = vec![0_u8; 1 << 20];
    let mut length = bytes.len();
    // SAFETY: the name has three components, the buffer is `length` bytes long, no new value is set.
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
    // SAFETY: the name ends in NUL, the buffer is longer than `length`, no new value is set.
    let done = unsafe {
        let name = c"kern.bootsessionuuid".as_ptr();
        libc::sysctlbyname(name, bytes.as_mut_ptr().cast(), &raw mut length, std::ptr::null_mut(), 0)
    };
    Errno::result(done)?;
    let text = CStr::from_bytes_until_nul(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(text.to_string_lossy().into_owned())
}

/// Opens a kqueue of the process that has this pid now; it becomes readable when that process ends.
pub(crate) fn open_process(pid: u32) -> io::Result<Option<OwnedFd>> {
    let queue = Kqueue::new()?;
    let (flags, exit) = (EvFlags::EV_ADD, FilterFlag::NOTE_EXIT);
    let watch = KEvent::new(raw_pid(pid)? as usize, EventFilter::EVFILT_PROC, flags, exit, 0, 0);
    match queue.kevent(&[watch], &mut [], None) {
        Ok(_) => Ok(Some(queue.into())),
        Err(Errno::ESRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal after an identity check; `false` if the process has ended. A race window of microseconds
/// remains between the check and the signal.
pub(crate) fn send(_fd: &OwnedFd, id: ProcId, signal: Signal) -> io::Result<bool> {
    let alive =
        || Ok::<_, io::Error>(read(id.pid)?.is_some_and(|now| now.id == id && now.state != State::Zombie));
    if !alive()? {
        return Ok(false);
    }
    match kill(Pid::from_raw(raw_pid(id.pid)?), signal) {
        Ok(()) => Ok(true),
        Err(Errno::ESRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True for shells and TERM: macOS does not report signal dispositions, and only shells are known to ignore it.
pub(crate) fn ignores(pid: u32, signal: nix::sys::signal::Signal) -> io::Result<bool> {
    let shells: [&[u8]; 6] = [b"bash", b"zsh", b"sh", b"ksh", b"fish", b"dash"];
    let is_shell = basic_info(pid)?.is_some_and(|found| shells.contains(&found.comm.0.as_slice()));
    Ok(signal == nix::sys::signal::Signal::SIGTERM && is_shell)
}

/// Always false: not read on macOS.
pub(crate) fn is_outdated(_: u32, _: &std::path::Path) -> io::Result<bool> {
    Ok(false)
}

/// No effect: macOS has no such call.
pub(crate) fn set_process_name(_: &[u8]) {}
