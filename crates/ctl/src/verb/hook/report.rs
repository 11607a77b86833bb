//! One report of a hook: what the agent wrote, to `poold` or into the spool, and the decision back.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use agents::{Adapter, answer, payload};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use protocol::blocking::Connection;
use protocol::hook::{Decision, Hook, Signal};
use protocol::reply::Frame;
use protocol::{ErrorCode, Hello, Refusal, Reply, Request, Response, Role};

use super::place::{self, Place};
use super::{Report, input, spool};
use crate::show::{escape, out, time};

/// How long `poold` has for a connection and an answer, before the report is left for it instead.
const LIMIT: Duration = Duration::from_millis(200);
/// Who may wait for minutes for an answer waits longer for a daemon that is slow. One that is away is known at once.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Time for a daemon that went away while it was asked to come back from a restart or an upgrade. After it the agent asks
/// at its terminal.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two tries to reach it.
const RETURN_PAUSE: Duration = Duration::from_millis(100);

/// That, or what `POOL_HOOK_LIMIT_MS` says, in milliseconds: a test is not to hang on how busy its machine is. Only in
/// builds with debug assertions.
fn limit() -> Duration {
    let set = || std::env::var("POOL_HOOK_LIMIT_MS").ok()?.parse().ok().map(Duration::from_millis);
    if cfg!(debug_assertions) { set().unwrap_or(LIMIT) } else { LIMIT }
}

/// What became of a report that `poold` was told.
#[derive(Debug)]
enum Told {
    /// It took it in.
    Taken,
    /// Somebody decided, and waits at the other end for the word that the agent took it.
    Decided(Decision, Connection),
    /// It did not take it in, and never will.
    Refused(Refusal),
    /// It may not have taken it in.
    Untold(Refusal),
    /// The agent does not wait for the decision any more.
    Unwanted,
}

/// Reports what an agent's hook says, at the session's socket or another one. Trouble is told to `remark`, and to
/// nobody else.
pub(super) fn report(agent: &str, args: &Report, socket: Option<&Path>, remark: &dyn Fn(&str)) {
    let Some(place) = Place::here() else { return };
    let remark = |trouble: &str| remark(&escape::lines(trouble));
    if args.installed && place::is_wired() {
        return;
    }
    let at = time::now();
    let written = args.said.as_ref().map_or_else(input::read, |said| said.as_bytes().to_vec());
    let Some(said) = payload::parse(Adapter::of(agent), &written) else {
        return remark("what the agent's hook says is not understood");
    };
    let Some(signal) = said.signal else { return };
    let Ok(id) = getrandom::u64() else { return };
    let Place { session, tag, .. } = place;
    let (conversation, transcript) = (said.conversation, said.transcript);
    let hook = Hook { session, tag, id, at, agent: agent.to_owned(), conversation, transcript, signal };
    match tell(socket.unwrap_or(&place.socket), hook.clone(), args.wait.unwrap_or_default()) {
        Told::Decided(decision, mut connection) => {
            if print(answer::decision(Adapter::of(agent), &said.event, &decision, &written)) {
                // Whether it comes to somebody is for whoever waits for it.
                drop(connection.send(Request::DecisionTaken { session, ask: id }));
            }
        }
        Told::Refused(refusal) => remark(&refusal.message),
        Told::Taken | Told::Unwanted => {}
        Told::Untold(refusal) => {
            remark(&refusal.message);
            if let Err(error) = spool::leave(place.spool.as_deref(), hook) {
                remark(&error.to_string());
            }
        }
    }
}

/// Tells `poold`. A request for a permission waits so long for its answer.
fn tell(socket: &Path, mut hook: Hook, wait: Duration) -> Told {
    if let Signal::Permission { wait_ms, .. } = &mut hook.signal {
        *wait_ms = protocol::time::millis(wait);
        if !wait.is_zero() {
            return ask(socket, hook, wait).unwrap_or_else(Told::Untold);
        }
    }
    // The same report is taken in once, so it may go along with the hello.
    let request = Request::Hook(Box::new(hook));
    match Connection::connect_and_ask(socket, &hello(), Some(limit()), None, request) {
        Ok((_, Ok(reply))) => understand(reply),
        Ok((_, Err(error))) => Told::Untold(error.refusal()),
        Err(error) => Told::Untold(error.refusal()),
    }
}

/// Any pool: the socket is the session's.
fn hello() -> Hello {
    Hello::new(Role::Client, "", concat!("poolctl ", env!("CARGO_PKG_VERSION")))
}

fn understand(reply: Reply) -> Told {
    match reply {
        Ok(_) => Told::Taken,
        Err(refusal) => match refusal.code {
            ErrorCode::Usage | ErrorCode::NotFound | ErrorCode::Conflict | ErrorCode::Refused => {
                Told::Refused(refusal)
            }
            // Its own trouble, or one of versions, which an upgrade mends.
            _ => Told::Untold(refusal),
        },
    }
}

/// Asks for a decision, and waits for it so long, or until the agent has turned away. A daemon that ends meanwhile is asked
/// again once it is back.
fn ask(socket: &Path, mut hook: Hook, wait: Duration) -> Result<Told, Refusal> {
    let end = Instant::now() + wait + limit();
    let mut connection = reach(socket, wait)?;
    let mut back = None;
    loop {
        let asked = Instant::now();
        let lost = match await_decision(connection, hook.clone(), end) {
            Ok(told) => return Ok(told),
            Err(refusal) if refusal.code == ErrorCode::Timeout => return Err(refusal),
            Err(refusal) => refusal,
        };
        // One that takes connections and hangs up again and again is not back.
        back = back.filter(|_| asked.elapsed() < RETURN_LIMIT);
        let back = *back.get_or_insert(Instant::now() + RETURN_LIMIT);
        connection = loop {
            std::thread::sleep(RETURN_PAUSE);
            match (Instant::now() < back.min(end), reach(socket, wait)) {
                (true, Ok(connection)) => break connection,
                (true, Err(_)) => {}
                (false, _) => return Err(lost),
            }
        };
        if let Signal::Permission { wait_ms, .. } = &mut hook.signal {
            let left = end.saturating_duration_since(Instant::now()).saturating_sub(limit());
            *wait_ms = (*wait_ms).min(protocol::time::millis(left)).max(1);
        }
    }
}

fn reach(socket: &Path, wait: Duration) -> Result<Connection, Refusal> {
    let connected = Connection::connect_within(socket, &hello(), Some(limit().max(ASK_LIMIT.min(wait / 4))));
    connected.map(|(connection, _)| connection).map_err(|error| error.refusal())
}

/// Asks over this connection. Refused where it was lost, or the time is over.
fn await_decision(mut connection: Connection, hook: Hook, end: Instant) -> Result<Told, Refusal> {
    let request = Request::Hook(Box::new(hook));
    let asked = connection.send(request).map_err(|error| error.refusal())?;
    let stdout = io::stdout();
    let reader = has_reader(&stdout).then_some(&stdout);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::new(ErrorCode::Timeout, "poold did not answer in time"));
        }
        let mut watched = vec![PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
        watched.extend(reader.map(|stdout| PollFd::new(stdout.as_fd(), PollFlags::empty())));
        let limit = PollTimeout::try_from(left.as_millis() + 1).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, limit) {
            Ok(0) | Err(Errno::EINTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(Refusal::new(ErrorCode::Failed, error.desc())),
        }
        let happened = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        if !happened(&watched[0]) {
            return Ok(Told::Unwanted);
        }
        match connection.next_frame().map_err(|error| error.refusal())? {
            Frame::Reply { id, reply } if id == asked || id == 0 => {
                return Ok(match reply {
                    Ok(Response::Decided(decision)) => Told::Decided(decision, connection),
                    reply => understand(reply),
                });
            }
            _ => {}
        }
    }
}

/// Whether it can be seen that nobody reads standard output any more.
fn has_reader(stdout: &io::Stdout) -> bool {
    let kind = stdout.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    kind.is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

/// Prints a decision. Whether somebody took it: where nobody reads it the terminal's own dialog decides.
fn print(decision: Option<Vec<u8>>) -> bool {
    decision.is_some_and(|decision| out::bytes(&decision).is_ok())
}
