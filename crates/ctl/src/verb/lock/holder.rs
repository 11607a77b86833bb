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
use super::{Event, is_gone, is_lost, renewal, unlock};
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::exit;

/// Holds the lock.
pub(super) struct Holder<'a> {
    context: &'a Context,
    locked: Locked,
    command: Running,
    hold: Hold,
}

/// What is known of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It is held until then, and longer where it is heard of again.
    Until(Instant),
    /// Its session is removed: nobody can hold it.
    Gone,
    /// It may be somebody else's.
    Lost,
}

impl<'a> Holder<'a> {
    /// With a lock that was given just now.
    pub(super) fn new(context: &'a Context, locked: Locked, command: Running) -> Self {
        let hold = Hold::Until(Instant::now() + Duration::from_millis(locked.lease_ms));
        Self { context, locked, command, hold }
    }

    /// Until the command is over; the code to exit with.
    pub(super) fn run(&mut self, events: &Receiver<Event>, client: &mut Client) -> Result<u8, Error> {
        let status = loop {
            match self.next(events) {
                Event::Signal(signal) => self.pass_on(signal),
                Event::Kept(since) if self.is_held() => {
                    self.hold = Hold::Until(since + Duration::from_millis(self.locked.lease_ms));
                }
                Event::Kept(_) => {}
                Event::Gone => self.hold = Hold::Gone,
                Event::Lost(why) => self.lose(&why),
                Event::Ended(status) => break status,
            }
        };
        let status =
            status.map_err(|error| Error::failed(format!("the command's end was not seen: {error}")))?;
        if self.is_held() {
            self.give_back(client);
        }
        Ok(if self.hold == Hold::Lost { ErrorCode::Conflict.exit_code() } else { code(status) })
    }

    fn is_held(&self) -> bool {
        matches!(self.hold, Hold::Until(_))
    }

    fn next(&self, events: &Receiver<Event>) -> Event {
        let event = match self.hold {
            Hold::Until(end) => events.recv_timeout(end.saturating_duration_since(Instant::now())),
            Hold::Gone | Hold::Lost => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
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
        if self.is_held() {
            self.hold = Hold::Lost;
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
            Err(error) if is_gone(&error) => {}
            Err(error) if is_lost(&error) => {
                self.hold = Hold::Lost;
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
