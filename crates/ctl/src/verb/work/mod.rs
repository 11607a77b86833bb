//! `work`: a worker that runs a command for each message. It claims messages, runs a handler for each, keeps
//! the claims alive meanwhile, and settles them by the exit codes of the handlers.
//!
//! The main thread starts the handlers and decides. Beside it, one thread claims, one keeps the leases and
//! settles, one receives signals, and one waits for each handler. All of them send [`WorkEvent`]s to the main
//! thread.

mod args;
mod claimer;
mod event;
mod handler;
mod handler_exit;
mod in_work;
mod lease_keeper;
mod pipes;
mod reconnect;
mod report;
mod worker;

use std::io;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::request::Register;
use protocol::worker::{ClaimScope, Selection};
use protocol::{ErrorCode, Tag};

use crate::args::labels;
use crate::show::{out, time};
use crate::{Context, Error, calls, signals};
pub(crate) use args::Args;
use claimer::Claimer;
use event::WorkEvent;
use handler::HandlerRunner;
use lease_keeper::LeaseKeeper;
use reconnect::Reconnecting;
use worker::Worker;

/// The default interval of heartbeats, and the longest.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Heartbeats per lease at least: two of them may be lost.
const HEARTBEATS: u32 = 3;

/// Works until it is told to stop, or with `--once` and `--until-empty` until there is nothing left to do.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let scope = scope(context, &args)?;
    let (sender, events) = mpsc::channel();
    let register = Register { scope, kinds: args.kind.clone() };
    // Nothing is held before: a signal ends this process as usual.
    let (connection, registered) = Reconnecting::register(context, &register)?;
    receive_signals(sender.clone(), args.host)?;
    note_missing(context, &register.scope);
    let lease = args.lease.unwrap_or(Duration::from_millis(registered.lease_ms));
    let every = args.heartbeat.unwrap_or(HEARTBEAT).min(lease / HEARTBEATS).max(Duration::from_millis(1));
    let of = registered.session.map(|session| format!(" of {session}")).unwrap_or_default();
    context.remark(&format!("generator {}{of}, a heartbeat every {every:?}", registered.generator));

    let leases =
        LeaseKeeper::start(Reconnecting::client(context), every, sender.clone()).map_err(not_started)?;
    let (quiet, lease_ms) = (context.style.quiet, args.lease.map(time::millis));
    let claimer = Claimer { connection, register, lease_ms, until_empty: args.until_empty, quiet };
    let orders = claimer.start(sender.clone(), leases.clone()).map_err(not_started)?;
    let handlers = HandlerRunner::new(context, &args, sender);
    Worker::new(context, &args, handlers, (orders, leases)).run(&events)
}

/// The messages that are worked.
fn scope(context: &Context, args: &Args) -> Result<ClaimScope, Error> {
    if args.host {
        let tag = std::env::var("POOL_INCARNATION").ok().and_then(|tag| tag.parse::<Tag>().ok());
        let outside = || Error::usage("--host is for the pool, which starts it in a worker's session");
        return tag.map(ClaimScope::Host).ok_or_else(outside);
    }
    let selection = if args.sessions.is_empty() {
        Selection::Matching { agent: args.agent.clone(), labels: labels(&args.label)? }
    } else {
        Selection::Named(args.sessions.iter().map(|one| context.session(one)).collect::<Result<_, _>>()?)
    };
    Ok(ClaimScope::Sessions(selection))
}

/// Notes which of several sessions do not exist: poold refuses only if none does, as one may be removed while the
/// others are worked.
fn note_missing(context: &Context, scope: &ClaimScope) {
    let ClaimScope::Sessions(Selection::Named(sessions)) = scope else { return };
    if sessions.len() == 1 || context.style.quiet {
        return;
    }
    let mut client = context.client();
    for session in sessions {
        let found = calls::session(&mut client, session.clone());
        if found.is_err_and(|error| error.code() == ErrorCode::NotFound) {
            out::note(&format!("poolctl: there is no session {session}; the others are worked"));
        }
    }
}

/// Receives the signals that end a worker. HUP is left alone if it is ignored, as under `nohup`, and in a host,
/// whose handlers the pool ends.
fn receive_signals(events: Sender<WorkEvent>, is_host: bool) -> Result<(), Error> {
    let hup = Some(Signal::SIGHUP).filter(|hup| !is_host && !process::identity::caller_ignores(*hup));
    signals::receive([Signal::SIGTERM, Signal::SIGINT].into_iter().chain(hup), move |signal| {
        events.send(WorkEvent::Signal(signal)).is_ok()
    })
}

fn not_started(error: io::Error) -> Error {
    Error::failed(format!("cannot start the worker: {error}"))
}
