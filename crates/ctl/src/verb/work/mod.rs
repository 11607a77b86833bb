//! `work`: a generator of any command. It claims messages, runs a handler for each, keeps the claims alive
//! meanwhile, and settles them by how the handlers end.
//!
//! The main thread starts the handlers and decides. Beside it, one thread claims, one keeps and settles
//! what is held, one waits for signals, and one for each handler. All tell the main thread by [`Event`]s.

mod claimer;
mod handler;
mod keeper;
mod link;
mod pipes;
mod report;
mod worker;

use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use protocol::message::Claimed;
use protocol::request::Register;
use protocol::{Refusal, Token};

use crate::cli::kind;
use crate::context::Context;
use crate::error::Error;
use crate::show::time;
use claimer::Claimer;
use handler::{Ended, Handlers};
use keeper::Keeper;
use link::Link;
use worker::Worker;

/// The longest time between two heartbeats where nobody says.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// So many heartbeats fit a lease at least: two may be lost.
const BEATS: u32 = 3;

/// Work a session's messages: run a handler for each, which ends as it was worked
///
/// The handler gets the body on standard input, and in its environment POOL_MESSAGE_ID, _KIND, _KEY,
/// _ORIGIN, _ATTEMPT, _MAX_ATTEMPTS, _TOKEN and _CREATED_AT, POOL_SESSION, POOL_SOCKET and POOL_NAME. Exit 0
/// means that it is worked, 75 that it is to be tried later, anything else that it failed and is tried
/// again. The first Ctrl-C or TERM lets what runs end; the second one ends it and gives the messages back, but
/// for those of which a process could not be ended.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whose messages
    pub session: String,
    /// Only messages of this kind; several are worked in the order in which they were sent [default: all but prompt]
    #[arg(long, value_parser = kind)]
    pub kind: Vec<String>,
    /// Handlers at a time; of one kind only one is worked at a time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub concurrency: u32,
    /// Time between two signs of life to the pool; at most a third of the lease [default: 15s]
    #[arg(long, value_name = "DUR", value_parser = time::positive)]
    pub heartbeat: Option<Duration>,
    /// How long this may be silent before its messages go to somebody else [default: the configuration's]
    #[arg(long, value_name = "DUR", value_parser = time::positive)]
    pub lease: Option<Duration>,
    /// Keep the first 64 KiB that the handler prints as the message's result, instead of printing it
    #[arg(long)]
    pub result: bool,
    /// End after one message
    #[arg(long)]
    pub once: bool,
    /// End when nothing of these kinds waits any more
    #[arg(long)]
    pub until_empty: bool,
    /// The program and its arguments, run without a shell
    #[arg(last = true, required = true, value_name = "HANDLER")]
    pub handler: Vec<OsString>,
}

/// What the main thread is told.
enum Event {
    /// A signal that asks for the end.
    Signal(Signal),
    /// The claim is over: these were given out; and whether more of the kinds waits.
    Claimed(Vec<Claimed>, bool),
    /// Nothing can be claimed any more.
    Broken(Error),
    /// A handler ended.
    Ended(Token, Ended),
    /// A handler that was to be ended is, with all that descends from it; or what is left of them.
    Killed(Token, Option<String>),
    /// The message is no longer held.
    Stale(Token),
    /// The message is settled, or that was refused.
    Settled(Token, Result<(), Refusal>),
}

/// Works until it is told to stop, or nothing is left where that was asked for.
pub(crate) fn run(context: &Context, args: Args) -> Result<u8, Error> {
    let session = context.session(&args.session)?;
    let (sender, events) = mpsc::channel();
    let register = Register { session, kinds: args.kind.clone() };
    // Until then nothing is held: a signal ends it as any other program.
    let (generator, registered) = Link::register(context, &register)?;
    // Held back before the first thread is made, so that each inherits it and one alone receives them.
    signals(sender.clone())?;
    let lease = args.lease.unwrap_or(Duration::from_millis(registered.lease_ms));
    let every = args.heartbeat.unwrap_or(HEARTBEAT).min(lease / BEATS).max(Duration::from_millis(1));
    context.remark(&format!(
        "generator {} of {}, a heartbeat each {every:?}",
        registered.generator, registered.session
    ));

    let keeper = Keeper::start(Link::client(context), every, sender.clone());
    let (quiet, lease_ms) = (context.style.quiet, args.lease.map(time::millis));
    let claimer = Claimer { link: generator, register, lease_ms, until_empty: args.until_empty, quiet };
    let orders = claimer.start(sender.clone(), keeper.clone()).map_err(no_thread)?;
    let handlers = Handlers::new(context, &args, registered.session, sender);
    Worker::new(context, &args, handlers, (orders, keeper)).run(&events)
}

fn signals(events: Sender<Event>) -> Result<(), Error> {
    let mut asked = SigSet::empty();
    asked.add(Signal::SIGTERM);
    asked.add(Signal::SIGINT);
    asked.thread_block().map_err(|error| Error::failed(format!("cannot hold back signals: {error}")))?;
    thread::spawn(move || {
        while let Ok(signal) = asked.wait() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

fn no_thread(error: io::Error) -> Error {
    Error::failed(format!("cannot begin: {error}"))
}
