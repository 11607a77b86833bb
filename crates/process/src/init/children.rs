//! State changes of child processes, by `wait4(2)`.
#![expect(
    unsafe_code,
    reason = "wait4, which reports the resource usage of a single child, has no safe wrapper"
)]

use std::ffi::c_int;
use std::mem;

use nix::errno::Errno;
use nix::unistd::Pid;

/// A state change of a child.
pub(super) struct ChildChange {
    pub(super) pid: Pid,
    /// Status in the format of `wait(2)`.
    pub(super) status: c_int,
    pub(super) usage: libc::rusage,
}

/// Reaps every child that has ended; true if any child remains.
pub(super) fn reap_all() -> bool {
    while next_change(0).is_some() {}
    Errno::last() != Errno::ECHILD
}

/// Returns a pending state change, without waiting. On `None`, errno is ECHILD if there is no child.
pub(super) fn next_change(flags: c_int) -> Option<ChildChange> {
    Errno::clear();
    let mut status = 0;
    // SAFETY: rusage is plain integers, for which zeros are a valid value; both buffers outlive the call.
    let (pid, usage) = unsafe {
        let mut usage = mem::zeroed();
        (libc::wait4(-1, &raw mut status, flags | libc::WNOHANG, &raw mut usage), usage)
    };
    (pid > 0).then(|| ChildChange { pid: Pid::from_raw(pid), status, usage })
}
