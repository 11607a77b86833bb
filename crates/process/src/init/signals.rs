//! The init's signals: all blocked, a few taken one by one, and one raised at the very end.
#![expect(unsafe_code, reason = "dispositions have no safe interface")]

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

/// Passed on to the program's group.
pub(super) const FORWARDED: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCONT,
];

/// Left unblocked: the init's own faults, for which a blocked signal is undefined behaviour.
const FAULTS: [Signal; 6] =
    [Signal::SIGSEGV, Signal::SIGBUS, Signal::SIGFPE, Signal::SIGILL, Signal::SIGABRT, Signal::SIGTRAP];

extern "C" fn nothing(_: nix::libc::c_int) {}

/// Blocks every signal, and gives those that [`next`] returns a handler: a signal that is ignored,
/// by inheritance or by default, may be dropped instead of kept.
pub(super) fn take_all() -> io::Result<()> {
    let mut blocked = SigSet::all();
    FAULTS.into_iter().for_each(|fault| blocked.remove(fault));
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
    let handler = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
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

/// Ends the caller by this signal as if it had never been handled, without a core file: the one of
/// the program is the one to keep. Returns only where the signal does not end a process; the caller
/// then exits with 128 + its number.
pub fn resignal(signal: i32) {
    let _ = getrlimit(Resource::RLIMIT_CORE).and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, 0, hard));
    // A core that is piped to a program is not limited by size.
    #[cfg(target_os = "linux")]
    let _ = nix::sys::prctl::set_dumpable(false);
    // SAFETY: the set is initialised by sigemptyset before it is read, the default disposition runs
    // no code of ours, and this is the only thread.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::raise(signal);
    }
}
