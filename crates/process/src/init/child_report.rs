//! Error report from the forked child to the parent, through a pipe that the exec closes: the failed step and
//! the errno.
#![expect(unsafe_code, reason = "only async-signal-safe calls are possible between fork and exec")]

use std::ffi::c_int;
use std::os::fd::RawFd;

/// Bytes per message: one for the step, four for the errno.
const LEN: usize = 5;

/// A step of the child that can fail.
#[derive(Clone, Copy)]
pub(super) enum ChildStep {
    /// Change to the working directory.
    ChangeDirectory,
    /// Execute the program.
    Execute,
    /// Apply the limit with this index.
    ApplyLimit(usize),
}

/// Sends a report; called in the child. Async-signal-safe.
pub(super) fn send_report(report: RawFd, step: ChildStep, error: c_int) {
    let step = match step {
        ChildStep::ChangeDirectory => 0,
        ChildStep::Execute => 1,
        ChildStep::ApplyLimit(index) => 2 + index,
    };
    let mut message = [step.to_le_bytes()[0]; LEN];
    message[1..].copy_from_slice(&error.to_ne_bytes());
    // SAFETY: the buffer has the given length; write is async-signal-safe.
    unsafe { libc::write(report, message.as_ptr().cast(), message.len()) };
}

/// Parses the reports, in order; called in the parent.
pub(super) fn parse(bytes: &[u8]) -> impl Iterator<Item = (ChildStep, c_int)> {
    bytes.as_chunks::<LEN>().0.iter().map(|&[step, ref error @ ..]| {
        let step = match step {
            0 => ChildStep::ChangeDirectory,
            1 => ChildStep::Execute,
            index => ChildStep::ApplyLimit(usize::from(index) - 2),
        };
        (step, c_int::from_ne_bytes(*error))
    })
}
