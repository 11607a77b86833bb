//! Signals that a command receives in a thread of its own.

use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};

use crate::{Error, threads};

/// Time within which a second signal counts as the same one: `timeout` sends it to a process and to its group, and a
/// wrapper passes on what the terminal has already sent to both.
pub(crate) const SAME_SIGNAL: Duration = Duration::from_millis(500);

/// Blocks these signals. Called before the first thread is started, so that every thread inherits the mask
/// and only one receives them.
pub(crate) fn block(signals: impl IntoIterator<Item = Signal>) -> Result<SigSet, Error> {
    let set: SigSet = signals.into_iter().collect();
    set.thread_block().map_err(|error| Error::failed(format!("cannot block signals: {error}")))?;
    Ok(set)
}

/// Blocks these signals, and from now on calls `receive` with each, in another thread, until it returns
/// false.
pub(crate) fn receive(
    signals: impl IntoIterator<Item = Signal>,
    mut receive: impl FnMut(Signal) -> bool + Send + 'static,
) -> Result<(), Error> {
    let set = block(signals)?;
    let receive_all = move || {
        while let Ok(signal) = set.wait() {
            if !receive(signal) {
                return;
            }
        }
    };
    threads::require(receive_all).map(drop)
}
