//! Threads, where the system may start none. A long-running command continues without another one for a while.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread::{Builder, JoinHandle};

use crate::Error;

/// Starts a thread. `std::thread::spawn` panics where this fails.
///
/// # Errors
/// The system is out of threads or memory.
pub(crate) fn start<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> io::Result<JoinHandle<R>> {
    Builder::new().spawn(work)
}

/// Starts a thread that a command cannot do without.
///
/// # Errors
/// As [`start`], as a sentence.
pub(crate) fn require<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<JoinHandle<R>, Error> {
    start(work).map_err(|error| {
        Error::failed(format!("cannot start a thread: {error}; end other processes, or raise `ulimit -u`"))
    })
}

/// Starts a thread that works on the value that it is sent, so that the work begins only once the thread exists. It
/// ends without a result if the sender is dropped first.
pub(crate) fn prepare<T: Send + 'static, R: Send + 'static>(
    work: impl FnOnce(T) -> R + Send + 'static,
) -> io::Result<(Sender<T>, JoinHandle<Option<R>>)> {
    let (sender, receiver) = mpsc::channel();
    let thread = start(move || receiver.recv().ok().map(work))?;
    Ok((sender, thread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prepared_thread_works_on_what_it_is_sent_or_ends() {
        let (sender, thread) = prepare(|n: u32| n + 1).unwrap();
        sender.send(1).unwrap();
        assert_eq!(thread.join().unwrap(), Some(2));
        let (sender, thread) = prepare(|n: u32| n + 1).unwrap();
        drop(sender);
        assert_eq!(thread.join().unwrap(), None);
    }
}
