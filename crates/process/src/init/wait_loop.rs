//! Main loop of the init while the program runs: forwards signals, reaps orphans, and keeps the program in
//! the foreground, until it exits.
#![expect(unsafe_code, reason = "a zeroed rusage")]

use std::ffi::c_int;
use std::mem;
use std::path::Path;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, tcsetpgrp};
use protocol::job::{ExitRecord, JOB_VERSION};

use super::children::{ChildChange, next_change};
use super::exit_status::InitExit;
use super::spawn::SpawnError;
use super::{init_signals, job_files};
use crate::cgroup;

/// Exit of the program, or its failure to start.
pub(super) struct ProgramExit {
    exit: InitExit,
    exec_error: Option<String>,
    usage: libc::rusage,
}

/// Waits for the program to exit. Nothing is sent to its process group afterwards, because the group id can
/// then be reused by other processes.
pub(super) fn wait_for_exit(agent: Pid) -> ProgramExit {
    loop {
        while let Some(change) = next_change(libc::WUNTRACED) {
            if change.pid != agent {
                continue;
            }
            if libc::WIFSTOPPED(change.status) {
                resume(agent, libc::WSTOPSIG(change.status));
            } else {
                return ProgramExit::from_change(&change);
            }
        }
        match init_signals::next() {
            Signal::SIGCHLD => {}
            signal => drop(killpg(agent, signal)),
        }
    }
}

/// Returns the program to the foreground if the terminal has stopped it, because no shell will. A program
/// that SIGSTOP has stopped stays stopped, because that was intended.
fn resume(agent: Pid, signal: c_int) {
    if [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU].contains(&signal) {
        let _ = tcsetpgrp(std::io::stdin(), agent);
        let _ = killpg(agent, Signal::SIGCONT);
    }
}

impl ProgramExit {
    fn from_change(change: &ChildChange) -> Self {
        let exit = if libc::WIFSIGNALED(change.status) {
            InitExit::Signal(libc::WTERMSIG(change.status))
        } else {
            InitExit::Code(libc::WEXITSTATUS(change.status).to_le_bytes()[0])
        };
        Self { exit, exec_error: None, usage: change.usage }
    }

    pub(super) fn failed_to_start(error: &SpawnError) -> Self {
        // SAFETY: rusage is plain integers, for which zeros are a valid value.
        Self {
            exit: InitExit::Code(error.code()),
            exec_error: Some(error.to_string()),
            usage: unsafe { mem::zeroed() },
        }
    }

    pub(super) fn exit(&self) -> InitExit {
        self.exit
    }

    /// Returns the exit record; `cgroup` is the program's control group.
    pub(super) fn record(&self, cgroup: Option<&Path>) -> ExitRecord {
        let (code, signal) = match self.exit {
            InitExit::Code(code) => (Some(code.into()), None),
            InitExit::Signal(signal) => (None, Some(signal)),
        };
        // macOS reports bytes, other systems KiB.
        let unit = if cfg!(target_os = "macos") { 1024 } else { 1 };
        ExitRecord {
            version: JOB_VERSION,
            code,
            signal,
            exec_error: self.exec_error.clone(),
            at: job_files::now(),
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
