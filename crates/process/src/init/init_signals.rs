//! Signals of the init: all are blocked, some are accepted one by one, and the last one is raised on exit.
#![expect(unsafe_code, reason = "signal dispositions have no safe interface")]

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

/// Signals that are forwarded to the program's process group.
pub(super) const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Signals that stay unblocked: faults of the init itself, for which blocking is undefined behaviour.
const FAULTS: [Signal; 6] =
    [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT, Signal::SIGTRAP];

extern "C" fn ignore(_: nix::libc::c_int) {}

/// Blocks every signal, and installs a handler for those that [`next`] returns: the kernel may drop a blocked
/// signal that is ignored, by inheritance or by default, instead of keeping it pending.
pub(super) fn block_all() -> io::Result<()> {
    let mut blocked = SigSet::all();
    FAULTS.into_iter().for_each(|fault| blocked.remove(fault));
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
    let handler = SigAction::new(SigHandler::Handler(ignore), SaFlags::empty(), SigSet::empty());
    for signal in awaited().iter() {
        // SAFETY: the handler does nothing, so it is async-signal-safe.
        unsafe { sigaction(signal, &handler) }?;
    }
    Ok(())
}

fn awaited() -> SigSet {
    FORWARDED.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Waits for one of [`FORWARDED`], or for SIGCHLD.
pub(super) fn next() -> Signal {
    awaited().wait().unwrap_or(Signal::SIGCHLD)
}

/// Ends the calling process by this signal, with its default disposition and without a core dump, which would
/// replace that of the program. Returns only if the signal does not end a process; the caller then exits with
/// 128 + its number.
pub fn resignal(signal: i32) {
    let _ = getrlimit(Resource::RLIMIT_CORE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, 0, hard));
    // A core dump that is piped to a program is not subject to the size limit.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the set is initialised by sigemptyset before it is read, the default disposition runs no
    // handler, and this is the only thread.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
