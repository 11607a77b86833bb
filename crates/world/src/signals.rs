//! Signals to a service: to end, or to read its configuration again.

use std::io;

use tokio::signal::unix::{self, SignalKind};

use crate::BoxFuture;

/// The request in a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// End in order: `SIGTERM`, `SIGINT`.
    End,
    /// Read the configuration again: `SIGHUP`.
    Reload,
}

/// A source of signals.
pub trait Signals: Send {
    /// Listens from now on. Before, a signal has the effect that the system gives it.
    fn listen(&mut self) -> io::Result<()>;
    /// Waits for the next signal.
    fn next(&mut self) -> BoxFuture<'_, Signal>;
}

/// The signals of the operating system.
#[derive(Default)]
pub struct SystemSignals(Option<Listening>);

struct Listening {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    /// `SIGXFSZ`, which would end the process: writing to a file beyond its limit (`ulimit -f`) only fails then.
    _file_size: unix::Signal,
}

impl Signals for SystemSignals {
    fn listen(&mut self) -> io::Result<()> {
        self.0 = Some(Listening {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            _file_size: unix::signal(SignalKind::from_raw(nix::libc::SIGXFSZ))?,
        });
        Ok(())
    }

    fn next(&mut self) -> BoxFuture<'_, Signal> {
        Box::pin(async move {
            let Some(Listening { terminate, interrupt, hang_up, .. }) = &mut self.0 else {
                return std::future::pending().await;
            };
            tokio::select! {
                biased;
                _ = terminate.recv() => Signal::End,
                _ = interrupt.recv() => Signal::End,
                _ = hang_up.recv() => Signal::Reload,
            }
        })
    }
}
