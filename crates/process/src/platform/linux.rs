//! Linux: `/proc` for reading, pidfds for handles and signals.

use std::collections::BTreeSet;
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
use protocol::{OsBytes, ProcId};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use super::proc;
use crate::bounded_reads::UNANSWERED;
use crate::info::{BasicInfo, Foreground, Process, Resources, State};
use crate::runtime::untrusted_file;

/// Upper bound of a `stat` file, in bytes: 52 numbers of at most 20 digits and a name of at most 64 bytes.
const SMALL_FILE: usize = 2048;
/// Suffix that the kernel appends to the path of a removed file or directory.
const DELETED: &[u8] = b" (deleted)";

/// Maps the errors of a process that has gone to `None`.
fn present<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

fn unreadable(pid: u32) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid} is not readable"))
}

fn open(pid: u32, name: &str) -> io::Result<File> {
    check_answers(pid, name)?;
    File::open(format!("/proc/{pid}/{name}"))
}

/// Files that are read without a lock on the process's program and memory.
const ALWAYS_ANSWERED: [&str; 4] = ["status", "comm", "cgroup", "limits"];

/// Refuses to read what would not answer.
fn check_answers(pid: u32, name: &str) -> io::Result<()> {
    let answers = ALWAYS_ANSWERED.contains(&name) || !UNANSWERED.contains(pid);
    if answers { Ok(()) } else { Err(io::ErrorKind::TimedOut.into()) }
}

/// Reads what can be read about a process that does not answer. Its start time is unknown.
pub(crate) fn unanswered_info(pid: u32) -> io::Result<Option<BasicInfo>> {
    Ok(read_file(pid, "status")?.and_then(|status| parse_status(pid, &status)))
}

/// Parses the fields of a `status` file that a `stat` file also has. The start time is 0, as a `status` file has none.
fn parse_status(pid: u32, status: &[u8]) -> Option<BasicInfo> {
    let field = |name: &str| proc::parse_field(status, name);
    // In nested namespaces a field has several numbers; the first is that of this namespace.
    let number = |name| field(name)?.split_ascii_whitespace().next()?.parse().ok();
    let state = match field("State")?.trim_start().bytes().next()? {
        b'X' | b'x' => return None,
        b'Z' => State::Zombie,
        b'T' | b't' => State::Stopped,
        _ => State::Running,
    };
    Some(BasicInfo {
        id: ProcId { pid, start: 0 },
        ppid: number("PPid")?,
        pgid: number("NSpgid").unwrap_or_default(),
        sid: number("NSsid").unwrap_or_default(),
        tpgid: None,
        state,
        comm: field("Name")?.trim_start().into(),
        image: proc::Image::Unknown,
    })
}

/// Reads the process of this identity while it does not answer. The pid cannot belong to another process until the
/// unanswered read returns. `None` if the process answers.
pub(crate) fn read_unanswered(id: ProcId) -> io::Result<Option<Process>> {
    let (info, uid) = (unanswered_info(id.pid)?, uid(id.pid)?);
    let found = info.zip(uid).filter(|_| UNANSWERED.contains(id.pid));
    Ok(found.map(|(info, uid)| BasicInfo { id, ..info }.with_user(uid)))
}

/// Reads a file of `/proc/PID`; `None` if the process has gone.
pub(crate) fn read_file(pid: u32, name: &str) -> io::Result<Option<Vec<u8>>> {
    present(open(pid, name).and_then(|file| {
        let mut bytes = Vec::with_capacity(1024);
        // `Take` saves the two system calls by which `File` asks for a size that such a file does not have.
        file.take(u64::MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }))
}

/// Reads a small file of `/proc/PID`, which the kernel returns in a single read.
fn read_small<T>(pid: u32, name: &str, parse: impl FnOnce(&[u8]) -> T) -> io::Result<Option<T>> {
    let mut bytes = [0; SMALL_FILE];
    let length = present(open(pid, name).and_then(|mut file| file.read(&mut bytes)))?;
    Ok(length.map(|length| parse(&bytes[..length])))
}

/// Reads and parses the `stat` file; `None` if the process has gone.
pub(crate) fn with_stat<T>(pid: u32, parse: impl FnOnce(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
    let parsed = read_small(pid, "stat", parse)?;
    parsed.map(|parsed| parsed.ok_or_else(|| unreadable(pid))).transpose()
}

/// Reads everything but the user, which is in a second file.
pub(crate) fn basic_info(pid: u32) -> io::Result<Option<BasicInfo>> {
    let info = with_stat(pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        Some(state(&stat).map(|state| BasicInfo {
            id: ProcId { pid: stat.pid, start: stat.start },
            ppid: stat.ppid,
            pgid: stat.pgid,
            sid: stat.sid,
            tpgid: stat.tpgid,
            state,
            comm: OsBytes(stat.comm.to_vec()),
            image: match (stat.image, state) {
                // The first thread has ended, and the others have an image that is not told here.
                (proc::Image::None, State::Running) if stat.threads > 1 => proc::Image::Unknown,
                (image, _) => image,
            },
        }))
    });
    Ok(info?.flatten())
}

pub(crate) fn read(pid: u32) -> io::Result<Option<Process>> {
    let (Some(info), Some(uid)) = (basic_info(pid)?, uid(pid)?) else { return Ok(None) };
    Ok(Some(info.with_user(uid)))
}

/// Reads the real user id.
pub(crate) fn uid(pid: u32) -> io::Result<Option<u32>> {
    let Some(status) = read_file(pid, "status")? else { return Ok(None) };
    proc::parse_uid(&status).map(Some).ok_or_else(|| unreadable(pid))
}

/// Maps the kernel's state letter. An ended main thread reads as `Z` even while other threads run.
pub(crate) fn state(stat: &proc::Stat<'_>) -> Option<State> {
    match stat.state {
        b'X' | b'x' => None,
        _ if stat.threads == 0 => None,
        b'Z' if stat.threads == 1 => Some(State::Zombie),
        b'T' | b't' => Some(State::Stopped),
        _ => Some(State::Running),
    }
}

/// Returns a thread other than the main one. If the main thread has ended first, it has no memory any more.
pub(crate) fn other_thread(pid: u32) -> Option<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()).find(|thread| *thread != pid)
}

/// Reads the working directory; a removed one has its last path. The kernel's suffix is stripped only if the
/// directory really was removed, because a directory's own name may end in it.
pub(crate) fn current_dir(pid: u32) -> io::Result<Option<OsBytes>> {
    check_answers(pid, "cwd")?;
    let link = format!("/proc/{pid}/cwd");
    let Some(target) = present(std::fs::read_link(&link))? else { return Ok(None) };
    let mut path = target.into_os_string().into_vec();
    if path.ends_with(DELETED) && present(std::fs::metadata(&link))?.is_some_and(|dir| dir.nlink() == 0) {
        path.truncate(path.len() - DELETED.len());
    }
    Ok(Some(OsBytes(path)))
}

pub(crate) fn argv(pid: u32) -> io::Result<Option<Vec<OsBytes>>> {
    Ok(read_file(pid, "cmdline")?.map(|bytes| proc::parse_cmdline(&bytes)))
}

/// Reads the living leader of a process group without its `stat`, which would take twice as long: a readable working
/// directory proves that it is alive. `None` if that is not readable, as for another user's process.
pub(crate) fn group_leader(group: u32) -> Option<Foreground> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(group).ok()?);
    if getpgid(Some(pid)) != Ok(pid) {
        return None;
    }
    let dir = current_dir(group).ok()??;
    let name = |comm: &[u8]| OsBytes(comm.strip_suffix(b"\n").unwrap_or(comm).to_vec());
    Some(Foreground { group, command: read_small(group, "comm", name).ok()??, dir: Some(dir) })
}

/// Finds a living member of a process group: first among the descendants of this process, then anywhere.
pub(crate) fn group_member(pid: u32, group: u32) -> io::Result<Option<BasicInfo>> {
    let in_group =
        |pid: u32| basic_info(pid).ok().flatten().filter(|info| info.is_alive() && info.pgid == group);
    let mut todo = children(pid);
    while let Some(child) = todo.pop() {
        if let Some(found) = in_group(child) {
            return Ok(Some(found));
        }
        todo.extend(children(child));
    }
    Ok(pids()?.into_iter().find_map(in_group))
}

/// Lists the child processes of all threads, adopted orphans included; empty if the kernel does not provide
/// it.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read(thread.path().join("children")).ok());
    lists.flat_map(|list| proc::parse_pids(&list)).collect()
}

/// Lists the pids of these processes and of all their descendants, or of all processes if the kernel does not list
/// children. If a process ends meanwhile, living ones can be missing: its siblings, with all below them.
pub(crate) fn pids_below(roots: &[u32]) -> io::Result<Vec<u32>> {
    if !std::fs::exists("/proc/thread-self/children")? {
        return pids();
    }
    let mut found: BTreeSet<u32> = roots.iter().copied().collect();
    let mut todo = Vec::from(roots);
    while let Some(pid) = todo.pop() {
        todo.extend(children(pid).into_iter().filter(|child| found.insert(*child)));
    }
    Ok(found.into_iter().collect())
}

/// Reads the resource use; a figure that the kernel denies is `None`.
pub(crate) fn resources(id: ProcId) -> io::Result<Option<Resources>> {
    let open_files = count_files(id.pid);
    let limits = read_file(id.pid, "limits").ok().flatten();
    // Last: the pid is still this process's, so everything read before was about it.
    let found = with_stat(id.pid, |bytes| {
        let stat = proc::parse_stat(bytes)?;
        Some(state(&stat).filter(|_| stat.start == id.start).map(|state| (state, stat.cpu)))
    })?;
    let found = found.flatten().filter(|(state, _)| *state != State::Zombie);
    Ok(found.map(|(state, ticks)| Resources {
        state,
        cpu: duration(ticks),
        open_files,
        open_files_max: limits.and_then(|limits| proc::parse_open_files_max(&limits)),
    }))
}

/// True if standard input or output is a pipe or a socket; false if that is not readable.
pub(crate) fn is_piped(pid: u32) -> bool {
    let target = |fd: u32| std::fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok();
    let is_pipe = |path: PathBuf| {
        [&b"pipe:"[..], b"socket:"].iter().any(|kind| path.as_os_str().as_bytes().starts_with(kind))
    };
    [0, 1].into_iter().filter_map(target).any(is_pipe)
}

/// Counts the open descriptors. Since Linux 6.2 the size of the directory is their number; before, it is 0.
fn count_files(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    match std::fs::metadata(&path).ok()?.len() {
        0 => std::fs::read_dir(path).ok().map(|entries| entries.count() as u64),
        count => Some(count),
    }
}

/// Converts clock ticks.
pub(crate) fn duration(ticks: u64) -> Duration {
    // 100 on every Linux architecture.
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|n| u64::try_from(n).ok());
    Duration::from_millis(ticks.saturating_mul(1000) / per_second.unwrap_or(100).max(1))
}

/// Lists all pids.
pub(crate) fn pids() -> io::Result<Vec<u32>> {
    let mut pids = Vec::with_capacity(512);
    for entry in std::fs::read_dir("/proc")? {
        pids.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    Ok(pids)
}

/// Reads the environment that the process was started with, a NUL after each entry. Denied if the process
/// hides its memory; wrong if it has overwritten it.
pub(crate) fn environ(pid: u32) -> io::Result<Option<Vec<u8>>> {
    let found = read_file(pid, "environ")?;
    if found.as_ref().is_some_and(|environ| !environ.is_empty()) {
        return Ok(found);
    }
    let Some(thread) = other_thread(pid) else { return Ok(found) };
    Ok(read_file(thread, "environ")?.or(found))
}

pub(crate) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Opens a descriptor of the process that has this pid now; it becomes readable when that process ends.
pub(crate) fn open_process(pid: u32) -> io::Result<Option<OwnedFd>> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(fd) => Ok(Some(fd)),
        // Beside the usual error, those for the id of a thread of another process: no process has this pid any more.
        Err(rustix::io::Errno::SRCH | rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal; `false` if the process has ended.
pub(crate) fn send(fd: &OwnedFd, _id: ProcId, signal: Signal) -> io::Result<bool> {
    let signal = rustix::process::Signal::from_named_raw(signal as i32).ok_or(io::ErrorKind::InvalidInput)?;
    match pidfd_send_signal(fd, signal) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// True if the process ignores this signal.
pub(crate) fn ignores(pid: u32, signal: Signal) -> io::Result<bool> {
    Ok(read_file(pid, "status")?.is_some_and(|status| has_signal(&status, "SigIgn", signal)))
}

/// True if the process handles or ignores TERM, and not HUP: HUP would end it before it has done what TERM leaves it
/// time for.
pub(crate) fn outlives_term_only(pid: u32) -> io::Result<bool> {
    let Some(status) = read_file(pid, "status")? else { return Ok(false) };
    let outlives = |signal| ["SigCgt", "SigIgn"].iter().any(|field| has_signal(&status, field, signal));
    Ok(outlives(Signal::SIGTERM) && !outlives(Signal::SIGHUP))
}

/// True if a mask of signals in a `status` file has this signal.
fn has_signal(status: &[u8], field: &str, signal: Signal) -> bool {
    let mask = proc::parse_field(status, field);
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal as i32 - 1) & 1 == 1)
}

/// True if this path names another file than the process runs, and the process was started from this path, or its own
/// file was removed.
pub(crate) fn is_outdated(pid: u32, path: &std::path::Path) -> io::Result<bool> {
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    let runs = std::fs::read_link(&exe)?.into_os_string().into_vec();
    if untrusted_file::id(&std::fs::metadata(&exe)?) == untrusted_file::id(&std::fs::metadata(path)?) {
        return Ok(false);
    }
    let path = path.canonicalize()?;
    // Its own file may have been moved since, or a link of its path now leads to another version.
    let leads_here = |first: &OsBytes| {
        let first = first.as_path();
        first.is_absolute() && first.canonicalize().is_ok_and(|first| first == path)
    };
    let is_from_here = runs == path.as_os_str().as_bytes()
        || argv(pid)?.is_some_and(|arguments| arguments.first().is_some_and(leads_here));
    Ok(runs.ends_with(DELETED) || is_from_here)
}

/// Sets the name of the calling thread in process listings; best effort, for display only.
pub(crate) fn set_process_name(name: &[u8]) {
    if let Ok(name) = std::ffi::CString::new(name) {
        nix::sys::prctl::set_name(&name).ok();
    }
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

    #[test]
    fn the_id_of_a_thread_is_that_of_no_process() {
        let (told, id) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            told.send(nix::unistd::gettid()).unwrap();
            ended.recv().ok();
        });
        let id = u32::try_from(id.recv().unwrap().as_raw()).unwrap();
        assert!(open_process(id).unwrap().is_none());
        drop(end);
        thread.join().unwrap();
    }

    #[test]
    fn a_program_that_handles_or_ignores_term_may_be_ended_by_hup_alone() {
        // Inherited, as below `nohup`.
        if crate::identity::caller_ignores(Signal::SIGHUP) {
            return;
        }
        for (trap, outlives) in [("trap : TERM", true), ("trap '' TERM", true), ("trap '' TERM HUP", false)] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &format!("{trap}; echo; read -r line")]);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            assert_eq!(outlives_term_only(child.id()).unwrap(), outlives, "{trap}");
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_status_tells_most_of_a_stat() {
        let text = "Name:\tsleep x\nState:\tD (disk sleep)\nPid:\t9\nPPid:\t7\nNSpgid:\t9\t1\nNSsid:\t5\t1\n";
        let info = parse_status(9, text.as_bytes()).unwrap();
        assert_eq!((info.id, info.ppid, info.pgid, info.sid), (ProcId { pid: 9, start: 0 }, 7, 9, 5));
        assert_eq!((info.state, info.comm.0.as_slice()), (State::Running, &b"sleep x"[..]));
        let zombie = text.replace("D (disk sleep)", "Z (zombie)");
        assert_eq!(parse_status(9, zombie.as_bytes()).unwrap().state, State::Zombie);
        assert_eq!(parse_status(9, b"Name:\tx\n"), None);
    }
}
