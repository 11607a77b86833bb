//! A hook's report: sends the agent's event to `poold` or leaves it in the spool, and prints the decision.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use agents::{Adapter, answer, payload};
use nix::poll::{PollFd, PollFlags};
use process::runtime::awake::awake;
use protocol::blocking::Connection;
use protocol::hook::{AwakeTime, Decision, Hook, HookEvent};
use protocol::{ErrorCode, Frame, Hello, Refusal, Reply, Request, Response, Role, Timestamp};

use super::environment::{HookEnvironment, has_own_hooks};
use super::{spool, stdin};
use crate::poll;
use crate::show::{escape, out, time};

/// The arguments of a report.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ReportArgs {
    /// For a permission: wait this long for `poolctl approve`, and print the decision
    #[arg(long, value_name = "DUR", value_parser = time::parse_duration)]
    pub wait: Option<Duration>,
    /// The hook is from a configuration file: do nothing if the agent was started with the pool's own hooks
    /// (POOL_HOOKED)
    #[arg(long)]
    pub installed: bool,
    /// The event, instead of standard input
    #[arg(value_name = "JSON")]
    pub payload: Option<OsString>,
}

/// Time limit for a connection to `poold` and an answer, after which the report is left in the spool.
const LIMIT: Duration = Duration::from_millis(200);
/// Time limit for a connection if a decision is waited for: the daemon may be slow. An absent one is noticed
/// at once.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// Time limit for the return of a daemon that is restarted or upgraded during a request for a decision. After it, the
/// agent asks at its terminal.
const RETURN_LIMIT: Duration = Duration::from_secs(5);
/// Interval between attempts to reach the daemon again.
const RETURN_PAUSE: Duration = Duration::from_millis(100);

/// [`LIMIT`], or in builds with debug assertions the milliseconds in `POOL_HOOK_LIMIT_MS`, so that tests do
/// not depend on the load of the machine.
fn limit() -> Duration {
    let set = || std::env::var("POOL_HOOK_LIMIT_MS").ok()?.parse().ok().map(Duration::from_millis);
    if cfg!(debug_assertions) { set().unwrap_or(LIMIT) } else { LIMIT }
}

/// The delivery of a report to `poold`.
#[derive(Debug)]
enum Delivery {
    /// `poold` accepted it.
    Accepted,
    /// `poold` answered with a decision, and waits on this connection for the notice that the agent took it.
    Decided(Decision, Connection),
    /// `poold` refused it for good.
    Refused(Refusal),
    /// `poold` may not have received it.
    Failed(Refusal),
    /// The agent does not wait for the decision any more.
    Abandoned,
}

/// Reports the event of an agent's hook, at the session's socket or another one. Errors are passed to
/// `remark` only.
pub(super) fn report(agent: &str, args: &ReportArgs, socket: Option<&Path>, remark: &dyn Fn(&str)) {
    let (at, awake) = stamp();
    // The payload is read first, because an agent that cannot write it takes the hook for failed.
    let written = args.payload.as_ref().map_or_else(stdin::read, |payload| payload.as_bytes().to_vec());
    let Some(environment) = HookEnvironment::read() else { return };
    let remark = |error: &str| remark(&escape::lines(error));
    if args.installed && has_own_hooks() {
        return;
    }
    let Some(parsed) = payload::parse(Adapter::of(agent), &written) else {
        return remark("the payload of the agent's hook cannot be parsed");
    };
    let Some(signal) = parsed.signal else { return };
    let Ok(id) = getrandom::u64() else { return };
    let HookEnvironment { session, tag, .. } = environment;
    let (conversation, transcript) = (parsed.conversation, parsed.transcript);
    let hook =
        Hook { session, tag, id, at, awake, agent: agent.to_owned(), conversation, transcript, signal };
    match deliver(socket.unwrap_or(&environment.socket), hook.clone(), args.wait.unwrap_or_default()) {
        Delivery::Decided(decision, mut connection) => {
            if print(answer::decision_output(Adapter::of(agent), &parsed.event, &decision, &written)) {
                // A failure to send is ignored: `poold` copes without the notice.
                drop(connection.send(Request::DecisionTaken { session, ask: id }));
            }
        }
        Delivery::Refused(refusal) => remark(&refusal.message),
        Delivery::Accepted | Delivery::Abandoned => {}
        Delivery::Failed(refusal) => {
            remark(&refusal.message);
            // The agent asks in its terminal from now on, so a permission request in the spool gets the present time.
            let mut hook = hook;
            if matches!(hook.signal, HookEvent::Permission { .. }) {
                (hook.at, hook.awake) = stamp();
            }
            if let Err(error) = spool::write(environment.spool.as_deref(), hook) {
                remark(&error.to_string());
            }
        }
    }
}

/// Reads both clocks; the time awake only where the boot is known.
fn stamp() -> (Timestamp, Option<AwakeTime>) {
    let ms = protocol::time::millis(awake());
    (time::now(), process::identity::boot_id().ok().map(|boot| AwakeTime { boot, ms }))
}

/// Delivers a report to `poold`. For a permission the decision is waited for, up to `wait`.
fn deliver(socket: &Path, mut hook: Hook, wait: Duration) -> Delivery {
    if let HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
        *wait_ms = protocol::time::millis(wait);
        if !wait.is_zero() {
            return ask(socket, hook, wait).unwrap_or_else(Delivery::Failed);
        }
    }
    // A repeated report is ignored, so it may be sent along with the hello.
    let request = Request::Hook(Box::new(hook));
    match Connection::connect_and_call(socket, &hello(), Some(limit()), None, request) {
        Ok((_, Ok(reply))) => delivery(reply),
        Ok((_, Err(error))) => Delivery::Failed(error.refusal()),
        Err(error) => Delivery::Failed(error.refusal()),
    }
}

/// The greeting, without the name of a pool: the socket is the session's.
fn hello() -> Hello {
    Hello::new(Role::Client, "", concat!("poolctl ", env!("CARGO_PKG_VERSION")))
}

fn delivery(reply: Reply) -> Delivery {
    match reply {
        Ok(_) => Delivery::Accepted,
        Err(refusal) => match refusal.code {
            ErrorCode::Usage | ErrorCode::NotFound | ErrorCode::Conflict | ErrorCode::Refused => {
                Delivery::Refused(refusal)
            }
            // A failure of `poold`, or a mismatch of versions, which an upgrade resolves.
            _ => Delivery::Failed(refusal),
        },
    }
}

/// Asks for a decision, and waits for it this long, or until the agent closes its end. A daemon that ends
/// meanwhile is asked again after its restart.
fn ask(socket: &Path, mut hook: Hook, wait: Duration) -> Result<Delivery, Refusal> {
    let end = Instant::now() + wait + limit();
    let mut connection = reach(socket, wait)?;
    let mut back = None;
    loop {
        let asked = Instant::now();
        let lost = match await_decision(connection, hook.clone(), end) {
            Ok(delivery) => return Ok(delivery),
            Err(refusal) if refusal.code == ErrorCode::Timeout => return Err(refusal),
            Err(refusal) => refusal,
        };
        // A daemon that accepts connections and closes them at once has not restarted.
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
        if let HookEvent::Permission { wait_ms, .. } = &mut hook.signal {
            let left = end.saturating_duration_since(Instant::now()).saturating_sub(limit());
            *wait_ms = (*wait_ms).min(protocol::time::millis(left)).max(1);
        }
    }
}

fn reach(socket: &Path, wait: Duration) -> Result<Connection, Refusal> {
    let connected = Connection::connect_within(socket, &hello(), Some(limit().max(ASK_LIMIT.min(wait / 4))));
    connected.map(|(connection, _)| connection).map_err(|error| error.refusal())
}

/// Asks on this connection.
fn await_decision(mut connection: Connection, hook: Hook, end: Instant) -> Result<Delivery, Refusal> {
    let request = Request::Hook(Box::new(hook));
    let asked = connection.send(request).map_err(|error| error.refusal())?;
    let stdout = io::stdout();
    let reader = has_reader(&stdout).then_some(&stdout);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Refusal::timeout("poold did not answer in time"));
        }
        let mut watched = vec![PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
        watched.extend(reader.map(|stdout| PollFd::new(stdout.as_fd(), PollFlags::empty())));
        poll::wait(&mut watched, Some(left))?;
        let happened = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        if !happened(&watched[0]) {
            if watched.get(1).is_some_and(happened) {
                return Ok(Delivery::Abandoned);
            }
            continue;
        }
        match connection.next_frame().map_err(|error| error.refusal())? {
            Frame::Reply { id, reply } if id == asked || id == 0 => {
                return match reply {
                    Ok(Response::Decided(decision)) => Ok(Delivery::Decided(decision, connection)),
                    // poold stops, or its database failed.
                    Err(refusal) if refusal.code == ErrorCode::Storage => Err(refusal),
                    reply => Ok(delivery(reply)),
                };
            }
            _ => {}
        }
    }
}

/// True if standard output is a pipe or socket, whose reader can be seen to close it.
fn has_reader(stdout: &io::Stdout) -> bool {
    let kind = stdout.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
    kind.is_ok_and(|found| found.file_type().is_fifo() || found.file_type().is_socket())
}

/// Prints a decision. Returns false if it cannot be written: the agent then asks at its terminal.
fn print(decision: Option<Vec<u8>>) -> bool {
    decision.is_some_and(|decision| out::bytes(&decision).is_ok())
}
