//! The holder of the lock: passes signals on to the command, ends it at the loss of the lock, and releases
//! the lock.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::reply::Locked;
use protocol::{ErrorCode, Refusal};

use super::command::RunningCommand;
use super::event::LockEvent;
use super::lease::{is_lost, is_removed, renew, unlock};
use crate::{Client, Context, Error, exit};

/// The holder of a lock while its command runs.
pub(super) struct Holder<'a> {
    context: &'a Context,
    locked: Locked,
    command: RunningCommand,
    state: LeaseState,
}

/// The state of the lease, as known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// The lock is held until then, unless the lease is renewed.
    HeldUntil(Instant),
    /// The session was removed, and the lock with it.
    SessionRemoved,
    /// Another holder may have the lock.
    Lost,
}

impl<'a> Holder<'a> {
    /// The holder of a lock that was granted just now.
    pub(super) fn new(context: &'a Context, locked: Locked, command: RunningCommand) -> Self {
        let state = LeaseState::HeldUntil(Instant::now() + Duration::from_millis(locked.lease_ms));
        Self { context, locked, command, state }
    }

    /// Handles events until the command has ended, and returns the code to exit with.
    pub(super) fn run(&mut self, events: &Receiver<LockEvent>, client: &mut Client) -> Result<u8, Error> {
        let status = loop {
            match self.next(events) {
                LockEvent::Signal(signal) => self.pass_on(signal),
                LockEvent::Renewed(at) if self.is_held() => {
                    self.state = LeaseState::HeldUntil(at + Duration::from_millis(self.locked.lease_ms));
                }
                LockEvent::Renewed(_) => {}
                LockEvent::SessionRemoved => self.state = LeaseState::SessionRemoved,
                LockEvent::Lost(why) => self.lose(&why),
                LockEvent::Ended(status) => break status,
            }
        };
        let status =
            status.map_err(|error| Error::failed(format!("cannot wait for the command: {error}")))?;
        if self.is_held() {
            self.release(client);
        }
        Ok(if self.state == LeaseState::Lost { ErrorCode::Conflict.exit_code() } else { code(status) })
    }

    fn is_held(&self) -> bool {
        matches!(self.state, LeaseState::HeldUntil(_))
    }

    fn next(&self, events: &Receiver<LockEvent>) -> LockEvent {
        let event = match self.state {
            LeaseState::HeldUntil(end) => events.recv_timeout(end.saturating_duration_since(Instant::now())),
            LeaseState::SessionRemoved | LeaseState::Lost => {
                events.recv().map_err(|_| RecvTimeoutError::Disconnected)
            }
        };
        event.unwrap_or_else(|error| match error {
            RecvTimeoutError::Timeout => {
                // Two causes are possible: if this process was stopped, poold may have been reachable all the time.
                let causes = "this command was stopped, or poold was not reached";
                LockEvent::Lost(format!("it was not renewed before its lease ended ({causes})"))
            }
            RecvTimeoutError::Disconnected => {
                LockEvent::Ended(Err(io::Error::other("the waiting thread ended")))
            }
        })
    }

    /// Ends the command, as another holder may have the lock.
    fn lose(&mut self, why: &str) {
        if self.is_held() {
            self.state = LeaseState::Lost;
            self.report_loss(&format!("{why}; the command gets TERM"));
            self.pass_on(Signal::SIGTERM);
            // A stopped command would not react.
            self.pass_on(Signal::SIGCONT);
        }
    }

    fn report_loss(&self, why: &str) {
        let loss = format!("the lock of {} is lost: {why}", self.locked.session);
        self.report(&Refusal::conflict(loss).into());
    }

    fn pass_on(&self, signal: Signal) {
        if let Err(error) = self.command.signal(signal) {
            self.report(&Error::failed(format!("{signal} did not reach the command: {error}")));
        }
    }

    /// Releases the lock. A renewal comes first, because it proves that the lock was held to the end: the release
    /// alone succeeds even if the lock is lost.
    fn release(&mut self, client: &mut Client) {
        match client.ask(renew(&self.locked)).and_then(|_| client.ask(unlock(&self.locked))) {
            Ok(_) => {}
            Err(error) if is_removed(&error) => {}
            Err(error) if is_lost(&error) => {
                self.state = LeaseState::Lost;
                self.report_loss(&error.to_string());
            }
            // The lock is free once this process is proved dead.
            Err(error) => self.context.remark(&format!("poolctl: the lock was not released: {error}")),
        }
    }

    fn report(&self, error: &Error) {
        exit::report(error, self.context.style.json, error.code().exit_code());
    }
}

/// The exit code of a program, as in a shell.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
