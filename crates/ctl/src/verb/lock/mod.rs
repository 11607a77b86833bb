//! `lock`: holds a session's lock while a command runs.
//!
//! The main thread starts the command and decides. Beside it, one thread renews the lease, one receives
//! signals, and one waits for the end of the command. All of them send [`LockEvent`]s to the main thread.

mod command;
mod event;
mod holder;
mod lease;
mod renewal;

use std::ffi::OsString;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::bounds::cut;
use protocol::reply::Locked;
use protocol::request::Lock;
use protocol::{OsBytes, Request, SessionRef, redact};

use crate::calls::expected;
use crate::exec::become_program;
use crate::show::{lock, time};
use crate::up::programs;
use crate::{Client, Context, Error, Repeat, expect_session, signals};
use command::RunningCommand;
use event::LockEvent;
use holder::Holder;

/// Bytes of the command line that others see.
const PURPOSE_MAX: usize = 200;
/// Time limit for asking who holds the lock that is waited for.
const HOLDER_LIMIT: Duration = Duration::from_secs(1);

/// Hold a session's lock while a command runs, and end with its exit code
///
/// Meanwhile no one else can type into the session, rename, park, restart, end or remove it; what the command
/// does through poolctl is done under the lock. Its environment contains POOL_LOCK_TOKEN, the fencing token,
/// and POOL_LOCK_SESSION, the session's id. Ctrl-C reaches the command; TERM and HUP are passed on to it. If
/// the lock is lost before the command ends, the command gets TERM, and the exit code is 4; it is 127 or 126
/// if the command cannot be run. Inside of the same lock the command is run as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The session
    session: String,
    /// Time to wait for the lock; 0: not at all [default: unlimited]
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    wait: Option<Duration>,
    /// Lease: without a renewal for this long, another holder can get the lock; from 1s to 24h [default: 60s]
    #[arg(long, value_name = "DUR", value_parser = time::parse_positive_duration)]
    lease: Option<Duration>,
    /// Take it from its holder, ahead of all who wait
    #[arg(long)]
    force: bool,
    /// The program and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command under the lock.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    // The path is determined now: the file may be replaced during the wait.
    let this = programs::this();
    let locked = acquire(context, &args, session)?;
    if locked.is_inside {
        return become_program(context, &args.command, None);
    }
    let mut client = without_lock(context.client());
    let (sender, events) = mpsc::channel();
    let started = receive_signals(sender.clone()).and_then(|()| {
        let renewal = renewal::start(without_lock(context.client()), locked, sender.clone())?;
        let command = command::under_lock(context, this, &args.command, &locked);
        Ok((renewal, RunningCommand::start(command, sender)?))
    });
    let (_renewal, command) = match started {
        Ok(started) => started,
        Err(error) => {
            // A lock that is not released here is free once this process has ended.
            drop(client.ask(lease::unlock(&locked)));
            return Err(error);
        }
    };
    Holder::new(context, locked, command).run(&events, &mut client)
}

/// Waits for the lock.
fn acquire(context: &Context, args: &Args, session: SessionRef) -> Result<Locked, Error> {
    let wait = args.wait.or(context.waiting_limit());
    let lock = Lock {
        session: session.clone(),
        purpose: purpose(&args.command),
        wait_ms: wait.map(time::millis),
        lease_ms: args.lease.map(time::millis),
        force: args.force,
    };
    let mut client = match args.wait {
        Some(wait) => context.client_within(Some(wait)),
        None => context.unlimited_client(),
    };
    let asking = (context.client(), args.session.clone());
    let _progress = context.progress_of(progress(asking, session));
    expected!(client.change(&Repeat::default(), Request::Lock(lock))?, Locked)
}

/// Returns a function that names the lock and its present holder.
fn progress((mut client, name): (Client, String), session: SessionRef) -> impl FnMut() -> String {
    move || {
        let view = client.ask_once(Request::Show(session.clone()), HOLDER_LIMIT).and_then(expect_session);
        let held = view.ok().and_then(|view| view.lock).map(|held| lock::holder(&held));
        let held = held.map(|holder| format!(", held by {holder}")).unwrap_or_default();
        format!("the lock of {name}{held}")
    }
}

/// The command line as others see it: shortened, and without secrets.
fn purpose(command: &[OsString]) -> String {
    let words: Vec<OsBytes> = command.iter().cloned().map(OsBytes::from).collect();
    let words: Vec<String> = redact::command(&words).iter().map(OsBytes::to_string_lossy).collect();
    cut(&words.join(" "), PURPOSE_MAX).to_owned()
}

/// Returns a client that makes its requests without a lock: renewing and releasing this lock depends on no other.
fn without_lock(mut client: Client) -> Client {
    client.lock = None;
    client
}

/// Passes TERM and HUP on to the command. INT and QUIT from the keyboard reach it by themselves, as it is in
/// the same process group.
fn receive_signals(events: Sender<LockEvent>) -> Result<(), Error> {
    let all = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];
    signals::receive(all, move |signal| {
        let passed_on = matches!(signal, Signal::SIGTERM | Signal::SIGHUP);
        !passed_on || events.send(LockEvent::Signal(signal)).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_purpose_has_no_secrets_and_is_short() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let told = purpose(&words(&["deploy", "--token", "hunter2", "a b"]));
        assert_eq!(told, "deploy --token …redacted… a b");
        let long = purpose(&words(&["x", &"é".repeat(500)]));
        assert_eq!((long.len(), long.starts_with("x éé")), (200, true));
    }
}
