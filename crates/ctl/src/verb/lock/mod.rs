//! `lock`: hold a session's lock while a command runs.
//!
//! The main thread starts the command and decides. Beside it, one thread keeps the lock, one waits for signals, and
//! one for the command's end. All tell the main thread by [`Event`]s.

mod command;
mod holder;
mod keeper;

use std::ffi::OsString;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use protocol::reply::Locked;
use protocol::request::Lock;
use protocol::{ErrorCode, OsBytes, Request, Response, SessionRef, redact};

use crate::cli::Repeat;
use crate::client::Client;
use crate::context::Context;
use crate::error::Error;
use crate::show::{lock, time};
use crate::up::programs;
use crate::verb::{become_program, expect_session};
use command::Running;
use holder::Holder;

/// How much of the command line others are told.
const PURPOSE_MAX: usize = 200;
/// How long it may take to find out who holds the lock that is waited for.
const LOOK: Duration = Duration::from_secs(1);

/// Hold a session's lock while a command runs, and end with its exit code
///
/// Meanwhile nobody else types into the session, renames, parks, restarts, ends or removes it; what the command
/// does by poolctl is done under the lock. In its environment are POOL_LOCK_TOKEN, the fencing token, and
/// POOL_LOCK_SESSION, the session's id. Ctrl-C is the command's; TERM and HUP are passed on to it. Where the lock is
/// lost before the command is over, it gets TERM, and the exit code is 4; it is 127 or 126 where the command cannot
/// be run. Under the same lock already, it is run as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which session
    pub session: String,
    /// How long to wait for the lock; 0: not at all [default: as long as it takes]
    #[arg(long, value_name = "DUR", value_parser = time::parse)]
    pub wait: Option<Duration>,
    /// How long this may be silent before somebody else gets the lock [default: 60s]
    #[arg(long, value_name = "DUR", value_parser = time::positive)]
    pub lease: Option<Duration>,
    /// Take it away from whoever holds it, and before all who wait
    #[arg(long)]
    pub force: bool,
    /// The program and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// What the main thread is told.
enum Event {
    /// A signal for the command.
    Signal(Signal),
    /// The lock was held still, some time after this.
    Kept(Instant),
    /// Its session is removed: there is nothing left to hold, and nothing that anybody else could do to it.
    Gone,
    /// It is not held any more.
    Lost(String),
    /// The command ended.
    Ended(std::io::Result<ExitStatus>),
}

/// Runs the command under the lock.
pub(crate) fn run(context: &Context, args: &Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    if is_held_around(context, &session)? {
        let command = args.command.clone();
        return become_program::run(context, &become_program::Args { ends_with: None, command });
    }
    // Where this program is now: it may be replaced during the wait.
    let this = programs::this();
    let locked = take(context, args, session)?;
    let mut client = under_no_lock(context.client());
    let (sender, events) = mpsc::channel();
    // Held back before the first thread is made, so that each inherits it and one alone receives them.
    let started = signals(sender.clone())
        .and_then(|()| Running::start(command::of(context, this, args, &locked), sender.clone()));
    let command = match started {
        Ok(command) => command,
        Err(error) => {
            // What is not given back is free when this ends.
            drop(client.ask(unlock(&locked)));
            return Err(error);
        }
    };
    let _keeper = keeper::start(under_no_lock(context.client()), locked, sender);
    Holder::new(context, locked, command).run(&events, &mut client)
}

/// Whether this runs under that very lock: who waited for it here would wait for ever.
fn is_held_around(context: &Context, session: &SessionRef) -> Result<bool, Error> {
    let Some(token) = context.lock else { return Ok(false) };
    let view = expect_session(context.client().ask(Request::Show(session.clone()))?)?;
    Ok(view.lock.is_some_and(|held| held.token == token))
}

/// Waits for the lock.
fn take(context: &Context, args: &Args, session: SessionRef) -> Result<Locked, Error> {
    let wait = args.wait.or(context.waiting_limit());
    let lock = Lock {
        session: session.clone(),
        purpose: purpose(&args.command),
        wait_ms: wait.map(time::millis),
        lease_ms: args.lease.map(time::millis),
        force: args.force,
    };
    let mut client = match args.wait {
        Some(wait) => context.client_within(wait),
        None => context.patient_client(),
    };
    let (looker, name) = (context.client(), args.session.clone());
    let _progress = context.progress_of(waited_for(looker, name, session));
    match client.change(&Repeat::default(), Request::Lock(lock))? {
        Response::Locked(locked) => Ok(locked),
        other => Err(Error::unexpected(&other)),
    }
}

/// What is waited for: whoever holds the lock now.
fn waited_for(mut client: Client, name: String, session: SessionRef) -> impl FnMut() -> String {
    move || {
        let view = client.ask_once(Request::Show(session.clone()), LOOK).and_then(expect_session);
        let held = view.ok().and_then(|view| view.lock).map(|held| lock::holder(&held));
        let held = held.map(|holder| format!(", held by {holder}")).unwrap_or_default();
        format!("the lock of {name}{held}")
    }
}

/// The command line for others to read: without its secrets, and not all of it where it is long.
fn purpose(command: &[OsString]) -> String {
    let words: Vec<OsBytes> = command.iter().cloned().map(OsBytes::from).collect();
    let words: Vec<String> = redact::command(&words).iter().map(OsBytes::to_string_lossy).collect();
    words.join(" ").chars().take(PURPOSE_MAX).collect()
}

/// Keeping this lock and giving it back hangs on no other one.
fn under_no_lock(mut client: Client) -> Client {
    client.lock = None;
    client
}

fn renewal(locked: &Locked) -> Request {
    Request::RenewLock { session: locked.session, token: locked.token }
}

fn unlock(locked: &Locked) -> Request {
    Request::Unlock { session: locked.session, token: locked.token }
}

/// Whether this says that the lock is somebody else's by now, or nobody's.
fn is_lost(error: &Error) -> bool {
    error.code() == ErrorCode::Conflict
}

/// Whether this says that there is no such session any more.
fn is_gone(error: &Error) -> bool {
    error.code() == ErrorCode::NotFound
}

/// INT and QUIT of the keyboard reach the command by themselves.
fn signals(events: Sender<Event>) -> Result<(), Error> {
    let mut held_back = SigSet::empty();
    let all = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];
    all.into_iter().for_each(|signal| held_back.add(signal));
    held_back.thread_block().map_err(|error| Error::failed(format!("cannot hold back signals: {error}")))?;
    thread::spawn(move || {
        while let Ok(signal) = held_back.wait() {
            let passed_on = matches!(signal, Signal::SIGTERM | Signal::SIGHUP);
            if passed_on && events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_are_told_has_no_secrets_and_an_end() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let told = purpose(&words(&["deploy", "--token", "hunter2", "a b"]));
        assert_eq!(told, "deploy --token …redacted… a b");
        let long = purpose(&words(&["x", &"é".repeat(500)]));
        assert_eq!((long.chars().count(), long.starts_with("x éé")), (200, true));
    }
}
