//! Looks after the running program: passes signals on, takes note of every orphan's end, keeps it
//! in the foreground, until it ends.
#![expect(unsafe_code, reason = "wait4 is what tells the resources of one child")]

use std::ffi::c_int;
use std::mem;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, tcsetpgrp};
use protocol::job::{ExitRecord, JOB_VERSION};

use super::spawn::SpawnError;
use super::{End, files, signals};
use crate::cgroup;

/// How the program ended.
pub(super) struct Ended {
    end: End,
    exec_error: Option<String>,
    usage: libc::rusage,
}

/// A change of a child.
struct Change {
    pid: Pid,
    status: c_int,
    usage: libc::rusage,
}

/// Returns when the program has ended. Nothing is sent to its group after that, when the number
/// of the group may come to belong to others.
pub(super) fn until_end(agent: Pid) -> Ended {
    loop {
        while let Some(change) = next_change(libc::WUNTRACED) {
            if change.pid != agent {
                continue;
            }
            if libc::WIFSTOPPED(change.status) {
                resume(agent, libc::WSTOPSIG(change.status));
            } else {
                return Ended::of(&change);
            }
        }
        match signals::next() {
            Signal::SIGCHLD => {}
            signal => drop(killpg(agent, signal)),
        }
    }
}

/// Stopped by the terminal, which has no shell to continue it: back into the foreground. Stopped
/// by SIGSTOP somebody wants it to stand still.
fn resume(agent: Pid, signal: c_int) {
    if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
        let _ = tcsetpgrp(std::io::stdin(), agent);
        let _ = killpg(agent, Signal::SIGCONT);
    }
}

/// Takes note of every child that has ended; whether one remains.
pub(super) fn reap_all() -> bool {
    while next_change(0).is_some() {}
    Errno::last() != Errno::ECHILD
}

/// The next change that has happened already. On `None`, errno is ECHILD where no child is left.
fn next_change(flags: c_int) -> Option<Change> {
    Errno::clear();
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zeros are a value; both places outlive the call.
    let (pid, usage) = unsafe {
        let mut usage = mem::zeroed();
        (libc::wait4(-1, &raw mut status, flags | libc::WNOHANG, &raw mut usage), usage)
    };
    (pid > 0).then(|| Change { pid: Pid::from_raw(pid), status, usage })
}

impl Ended {
    fn of(change: &Change) -> Self {
        let end = if libc::WIFSIGNALED(change.status) {
            End::Signal(libc::WTERMSIG(change.status))
        } else {
            End::Code(libc::WEXITSTATUS(change.status).to_le_bytes()[0])
        };
        Self { end, exec_error: None, usage: change.usage }
    }

    pub(super) fn never_ran(error: &SpawnError) -> Self {
        // SAFETY: rusage is plain integers, for which zeros are a value.
        Self {
            end: End::Code(error.code()),
            exec_error: Some(error.to_string()),
            usage: unsafe { mem::zeroed() },
        }
    }

    pub(super) fn end(&self) -> End {
        self.end
    }

    /// `cgroup` is where the program was.
    pub(super) fn record(&self, cgroup: Option<&Path>) -> ExitRecord {
        let (code, signal) = match self.end {
            End::Code(code) => (Some(code.into()), None),
            End::Signal(signal) => (None, Some(signal)),
        };
        // macOS counts bytes.
        let unit = if cfg!(target_os = "macos") { 1024 } else { 1 };
        ExitRecord {
            version: JOB_VERSION,
            code,
            signal,
            exec_error: self.exec_error.clone(),
            at: files::now(),
            user_us: microseconds(self.usage.ru_utime),
            system_us: microseconds(self.usage.ru_stime),
            max_rss_kib: u64::try_from(self.usage.ru_maxrss).unwrap_or(0) / unit,
            oom_kills: cgroup.and_then(cgroup::oom_kills),
        }
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}
