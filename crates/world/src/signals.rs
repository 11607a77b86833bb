//! Signals to a service: to end, or to read its configuration again.

use std::io;

use tokio::signal::unix::{self, SignalKind};

use crate::BoxFuture;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in order: `SIGTERM`, `SIGINT`.
    End,
    /// Read the configuration again: `SIGHUP`.
    Reload,
}

/// A source of signals.
pub trait Signals: Send {
    /// Waits for the next signal.
    fn next(&mut self) -> BoxFuture<'_, Signal>;
}

/// The signals of the operating system.
pub struct SystemSignals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
}

impl SystemSignals {
    /// Listens from now on. Needs a tokio runtime.
    ///
    /// # Errors
    /// The system refuses.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
        })
    }
}

impl Signals for SystemSignals {
    fn next(&mut self) -> BoxFuture<'_, Signal> {
        Box::pin(async move {
            tokio::select! {
                biased;
                _ = self.terminate.recv() => Signal::End,
                _ = self.interrupt.recv() => Signal::End,
                _ = self.hang_up.recv() => Signal::Reload,
            }
        })
    }
}
