//! The events that the threads of `lock` send to the main thread.

use std::io;
use std::process::ExitStatus;
use std::time::Instant;

use nix::sys::signal::Signal;

/// An event for the main thread.
pub(super) enum LockEvent {
    /// A signal to pass on to the command.
    Signal(Signal),
    /// The lease was renewed by a request sent at this time.
    Renewed(Instant),
    /// The session was removed: there is nothing left to hold, and nothing that others could do to it.
    SessionRemoved,
    /// The lock is not held any more, and why.
    Lost(String),
    /// The command ended.
    Ended(io::Result<ExitStatus>),
}
