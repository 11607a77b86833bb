//! The end of this process by a signal, as its parent sees it.

use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};

/// Ends this process as the signal would by default, even if the signal is blocked or ignored. Returns only for a
/// signal that does not end a process.
pub fn end_by(last: Signal) {
    // SAFETY: the default disposition runs no handler.
    #[expect(unsafe_code, reason = "setting a disposition is unsafe for the sake of handlers")]
    let reset = unsafe { signal(last, SigHandler::SigDfl) };
    // None of these calls fails for a signal that can end a process.
    reset.and_then(|_| SigSet::from(last).thread_unblock()).and_then(|()| raise(last)).ok();
}
