//! "Waiting for …" on standard error, on a terminal only, once something takes longer than a moment.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::show::{escape, time};

/// What takes less is not worth a word.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows what is waited for until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Starts; does nothing where nobody watches.
    #[must_use]
    pub(crate) fn start(what: &str, quiet: bool) -> Self {
        let what = what.to_owned();
        Self::follow(move || what.clone(), quiet)
    }

    /// The same of what changes meanwhile: it is looked at again each time.
    #[must_use]
    pub(crate) fn follow(mut what: impl FnMut() -> String + Send + 'static, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let started = Instant::now();
            while stopped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let (what, took) = (escape::line(&what()), time::short(started.elapsed()));
                drop(write!(io::stderr(), "\r\x1b[Kwaiting for {what} ({took})"));
            }
            drop(write!(io::stderr(), "\r\x1b[K"));
        });
        Self { shown: Some((stop, thread)) }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.shown.take() {
            drop(stop);
            // It ends at once; that it panicked would change nothing here.
            drop(thread.join());
        }
    }
}
