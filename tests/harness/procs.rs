//! The process table, read from `/proc`; empty on systems without it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Pids of all processes.
pub(crate) fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn file(pid: u32, name: &str) -> Vec<u8> {
    fs::read(Path::new("/proc").join(pid.to_string()).join(name)).unwrap_or_default()
}

/// State letter and parent pid of an existing process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let text = String::from_utf8_lossy(&file(pid, "stat")).into_owned();
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// True if the process exists and is no zombie.
pub(crate) fn alive(pid: u32) -> bool {
    if cfg!(target_os = "linux") {
        stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
    } else {
        kill(target(pid), None).is_ok()
    }
}

/// True if the process has ended.
pub(crate) fn gone(pid: u32) -> bool {
    !alive(pid)
}

/// True if the process is stopped by a signal.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'T')
}

/// The parent of an existing process.
pub(crate) fn parent(pid: u32) -> Option<u32> {
    stat(pid).map(|(_, parent)| parent)
}

/// Running children.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let is_child = |child: &u32| stat(*child).is_some_and(|(state, parent)| parent == pid && state != 'Z');
    pids().into_iter().filter(is_child).collect()
}

/// All running descendants.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    children(pid).into_iter().flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// Command line, NUL-separated.
pub(crate) fn words(pid: u32) -> Vec<u8> {
    file(pid, "cmdline")
}

/// Pids of the log writers of a session, or of a pool, by the directory.
pub(crate) fn log_writers(dir: &Path) -> Vec<u32> {
    let is_of_it = |pid: &u32| {
        let line = words(*pid);
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"log")
            && words.next().is_some_and(|word| word.starts_with(dir.as_os_str().as_bytes()))
    };
    pids().into_iter().filter(is_of_it).collect()
}

/// Environment at the time of exec, one `NAME=value` each.
pub(crate) fn environ(pid: u32) -> Vec<Vec<u8>> {
    entries(&file(pid, "environ")).map(<[u8]>::to_vec).collect()
}

fn entries(environ: &[u8]) -> impl Iterator<Item = &[u8]> {
    environ.split(|byte| *byte == 0)
}

/// Running processes that have `variable` in their environment, each with its value of `other`.
pub(crate) fn find_marked(variable: &str, other: &str) -> Vec<(u32, String)> {
    let prefix = format!("{other}=");
    let marked = |pid: u32| {
        let environ = file(pid, "environ");
        if !entries(&environ).any(|entry| entry == variable.as_bytes()) {
            return None;
        }
        let value = entries(&environ).find_map(|entry| entry.strip_prefix(prefix.as_bytes()));
        let value = value.map(|value| String::from_utf8_lossy(value).into_owned()).unwrap_or_default();
        alive(pid).then_some((pid, value))
    };
    pids().into_iter().filter_map(marked).collect()
}

/// Sends a signal to one process, which may have ended.
#[track_caller]
pub(crate) fn send_signal(pid: u32, signal: Signal) {
    // A process that has ended is fine.
    let _ = kill(target(pid), signal);
}

#[track_caller]
fn target(pid: u32) -> Pid {
    assert!(pid > 1, "no process of a test has pid {pid}");
    Pid::from_raw(i32::try_from(pid).unwrap())
}
