//! The three daemons as child processes of a test, each started, killed and restarted on its own.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::procs::send_signal;
use super::wait::{PATIENCE, eventually};

/// One of the pool's programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Poold,
    Watch,
    Reaper,
}

impl Program {
    /// The three daemons, in the usual order of starting.
    pub(crate) const ALL: [Self; 3] = [Self::Poold, Self::Watch, Self::Reaper];

    /// Path of the built binary.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Poold => env!("CARGO_BIN_EXE_poold"),
            Self::Watch => env!("CARGO_BIN_EXE_tmux-watch"),
            Self::Reaper => env!("CARGO_BIN_EXE_reaper"),
        }
    }

    /// Name of the program in `status`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poold => "poold",
            Self::Watch => "tmux-watch",
            Self::Reaper => "reaper",
        }
    }
}

/// A running daemon.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts the daemon; its output is appended to `log`.
    #[track_caller]
    pub(crate) fn start(mut command: Command, log: &PathBuf) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Exit code if it has ended; 128 + signal number if a signal ended it.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().unwrap()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// Sends a signal and waits for the end; returns the exit code.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: Signal) -> i32 {
        if self.ended().is_none() {
            send_signal(self.pid(), signal);
        }
        eventually("a daemon ends", PATIENCE, || self.ended())
    }
}
