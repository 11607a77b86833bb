//! Decides while the command runs: what is passed on to it, and whether the lock is held still.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::reply::Locked;
use protocol::{ErrorCode, Refusal};

use super::command::Running;
use super::{Event, is_lost, renewal, unlock};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;

/// Holds the lock.
pub(super) struct Holder<'a> {
    context: &'a Context,
    locked: Locked,
    command: Running,
    /// When its lease is over, unless it is heard of again; none where it is lost already.
    until: Option<Instant>,
}

impl<'a> Holder<'a> {
    /// With a lock that was given just now.
    pub(super) fn new(context: &'a Context, locked: Locked, command: Running) -> Self {
        let until = Some(Instant::now() + Duration::from_millis(locked.lease_ms));
        Self { context, locked, command, until }
    }

    /// Until the command is over; the code to exit with.
    pub(super) fn run(&mut self, events: &Receiver<Event>, client: &mut Client) -> Result<u8, Error> {
        let status = loop {
            match self.next(events) {
                Event::Signal(signal) => self.pass_on(signal),
                Event::Kept(since) if self.until.is_some() => self.until = Some(since + self.lease()),
                Event::Kept(_) => {}
                Event::Lost(why) => self.lose(&why),
                Event::Ended(status) => break status,
            }
        };
        let status =
            status.map_err(|error| Error::failed(format!("the command's end was not seen: {error}")))?;
        if self.until.is_some() {
            self.give_back(client);
        }
        Ok(if self.until.is_some() { code(status) } else { ErrorCode::Conflict.exit_code() })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.locked.lease_ms)
    }

    fn next(&self, events: &Receiver<Event>) -> Event {
        let event = match self.until {
            Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        event.unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                Event::Lost("poold was not reached for as long as its lease lasts".into())
            }
            RecvTimeoutError::Disconnected => Event::Ended(Err(io::Error::other("nobody waits for it"))),
        })
    }

    /// It may be somebody else's by now: the command must not go on believing that it is not.
    fn lose(&mut self, why: &str) {
        if self.until.take().is_some() {
            self.tell_lost(&format!("{why}; the command gets TERM"));
            self.pass_on(Signal::SIGTERM);
            // One that is stopped would not take notice.
            self.pass_on(Signal::SIGCONT);
        }
    }

    fn tell_lost(&self, why: &str) {
        let told = format!("the lock of {} is lost: {why}", self.locked.session);
        self.report(&Refusal::new(ErrorCode::Conflict, told).into());
    }

    fn pass_on(&self, signal: Signal) {
        if let Err(error) = self.command.signal(signal) {
            self.report(&Error::failed(format!("{signal} did not reach the command: {error}")));
        }
    }

    /// Gives it back, held to the end, which a last sign of life tells: giving back what is held no longer is done
    /// already.
    fn give_back(&mut self, client: &mut Client) {
        match client.ask(renewal(&self.locked)).and_then(|_| client.ask(unlock(&self.locked))) {
            Ok(_) => {}
            Err(error) if is_lost(&error) => {
                self.until = None;
                self.tell_lost(&error.to_string());
            }
            // It is free when this process is proved dead.
            Err(error) => self.context.remark(&format!("poolctl: the lock is not given back: {error}")),
        }
    }

    fn report(&self, error: &Error) {
        exit::report(error, self.context.style.json, error.code().exit_code());
    }
}

/// The code of a program, as a shell shows it.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
