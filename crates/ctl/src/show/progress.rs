//! The line "waiting for …" on standard error, shown on a terminal only and not before a second.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::show::{escape, time};

/// Time before the line first appears, and between its updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Shows the line until it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Shows what is waited for. Does nothing if `quiet`, or if standard error is no terminal.
    #[must_use]
    pub(crate) fn start(what: &str, quiet: bool) -> Self {
        let what = what.to_owned();
        Self::follow(move || what.clone(), quiet)
    }

    /// As [`Progress::start`], with a function that returns the text for each update.
    #[must_use]
    pub(crate) fn follow(mut what: impl FnMut() -> String + Send + 'static, quiet: bool) -> Self {
        if quiet || !io::stderr().is_terminal() {
            return Self { shown: None };
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let started = Instant::now();
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
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
            // The thread ends at once. A panic in it is ignored.
            drop(thread.join());
        }
    }
}
