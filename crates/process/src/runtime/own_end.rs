//! The end of this process by a signal, as its parent sees it.

use nix::sys::signal::{SigSet, Signal, raise};

/// Ends this process as the signal would by itself, also where it is blocked. Returns if it is ignored or handled.
pub fn end_by(signal: Signal) {
    // Only an unknown signal is an error.
    SigSet::from(signal).thread_unblock().and_then(|()| raise(signal)).ok();
}
