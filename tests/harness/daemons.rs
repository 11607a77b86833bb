//! The three daemons as children of the test: each is started, killed and started again alone.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::procs::send_signal;
use super::wait::{PATIENCE, eventually};

/// A program of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Poold,
    Watch,
    Reaper,
}

impl Program {
    /// The three in the order in which they are usually started.
    pub(crate) const ALL: [Self; 3] = [Self::Poold, Self::Watch, Self::Reaper];

    /// What was built of it.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Poold => env!("CARGO_BIN_EXE_poold"),
            Self::Watch => env!("CARGO_BIN_EXE_tmux-watch"),
            Self::Reaper => env!("CARGO_BIN_EXE_reaper"),
        }
    }

    /// Its name among the components.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poold => "poold",
            Self::Watch => "tmux-watch",
            Self::Reaper => "reaper",
        }
    }
}

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts it, its output appended to this file.
    #[track_caller]
    pub(crate) fn start(mut command: Command, log: &PathBuf) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(log).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did: exit code, or 128 and the signal.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let status = self.child.try_wait().unwrap()?;
        Some(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default()))
    }

    /// Sends it a signal and waits for its end.
    #[track_caller]
    pub(crate) fn end(&mut self, signal: Signal) -> i32 {
        if self.ended().is_none() {
            send_signal(self.pid(), signal);
        }
        eventually("a daemon ends", PATIENCE, || self.ended())
    }
}
