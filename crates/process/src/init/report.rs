//! What the child tells its parent between fork and exec, through a pipe that the exec closes: which
//! step failed, and the errno.
#![expect(unsafe_code, reason = "what may run between fork and exec")]

use std::ffi::c_int;
use std::os::fd::RawFd;

/// The step and the errno.
const LEN: usize = 5;

/// What the child can fail at.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// To enter the directory.
    Enter,
    /// To execute the program.
    Execute,
    /// To apply the rule at this place.
    Bind(usize),
}

/// In the child: async-signal-safe.
pub(super) fn tell(report: RawFd, step: Step, error: c_int) {
    let step = match step {
        Step::Enter => 0,
        Step::Execute => 1,
        Step::Bind(at) => 2 + at,
    };
    let mut message = [step.to_le_bytes()[0]; LEN];
    message[1..].copy_from_slice(&error.to_ne_bytes());
    // SAFETY: the message is as long as that; write is async-signal-safe.
    unsafe { libc::write(report, message.as_ptr().cast(), message.len()) };
}

/// In the parent: what was told, in order.
pub(super) fn parse(told: &[u8]) -> impl Iterator<Item = (Step, c_int)> {
    told.as_chunks::<LEN>().0.iter().map(|&[step, ref error @ ..]| {
        let step = match step {
            0 => Step::Enter,
            1 => Step::Execute,
            at => Step::Bind(usize::from(at) - 2),
        };
        (step, c_int::from_ne_bytes(*error))
    })
}
