//! `down`: stops the daemons that `up` keeps running. Sessions live on.

use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::Signal;
use process::handle::Handle;
use protocol::reply::Status;
use protocol::{ErrorCode, Paths};
use serde_json::json;

use crate::daemon_absence::DaemonAbsence;
use crate::show::out;
use crate::up::{builds, health, orphans, started, stop};
use crate::{Context, Error, supervisor_lock, threads};

/// Stop the pool's daemons; sessions live on
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// End the sessions first
    #[arg(long)]
    stop_sessions: bool,
    /// For scripts/install: do nothing unless `up` keeps the pool running
    #[arg(long, hide = true)]
    if_kept: bool,
}

/// Returns once they have stopped.
pub(crate) fn run(context: &Context, args: Args) -> Result<(), Error> {
    if args.if_kept
        && supervisor_lock::holder(&context.paths.up_lock).is_none()
        && !orphans::are_left(context)?
    {
        return Ok(());
    }
    health::check_is_pool(context)?;
    if args.stop_sessions && is_inside(context) {
        return from_inside(context);
    }
    let (alive, _no_starts) = match stop::running_sessions(context) {
        Err(error) if args.stop_sessions && exists(context, &error) || is_unknown(context) => {
            return Err(error);
        }
        Ok(_) if args.stop_sessions => {
            check_started_by_up(context)?;
            let no_starts = stop::sessions(context)?;
            (stop::running_sessions(context), Some(no_starts))
        }
        alive => (alive, None),
    };
    let mut stopped = stop::supervisor(context)?;
    if (stopped || supervisor_lock::is_orphaned(&context.paths.up_lock))
        && let Some(left) = health::status(context)
    {
        let _progress = context.progress("the daemons to stop");
        orphans::end(orphans::daemons(&left)?)?;
        stopped = true;
    }
    // The daemons that an earlier supervisor started, whether or not they are connected to poold.
    let started = started::alive(&context.paths)?;
    stopped |= !started.is_empty();
    orphans::end(started.iter().map(|(_, handle)| handle.id()).collect())?;
    if let Some(left) = health::status(context) {
        return Err(still_runs(&left, stopped));
    }
    if supervisor_lock::is_held(&context.paths.lock) {
        return Err(Error::failed(DaemonAbsence::new(context).left_running()));
    }
    let alive = alive.ok().map(|views| views.len());
    tell(context, stopped, alive)?;
    let socket = &context.paths.tmux_socket;
    if args.stop_sessions && !context.style.quiet && is_listening(socket.clone()) {
        out::note(&format!(
            "poolctl: its tmux server runs on: `tmux -S {} ls` shows what keeps it",
            socket.display()
        ));
    }
    match alive {
        Some(1..) if args.stop_sessions => Err(Error::failed("not all sessions were ended")),
        None if args.stop_sessions && is_listening(socket.clone()) => Err(Error::failed(
            "there was no poold to end the sessions, which still run: `poolctl up`, then this command again",
        )),
        _ => Ok(()),
    }
}

/// True if it is unknown whether this pool runs, because it belongs to another user, or its directory cannot be read.
fn is_unknown(context: &Context) -> bool {
    let is_unread = |error: io::Error| {
        let is_io = error.raw_os_error() == Some(nix::libc::EIO);
        is_io || error.kind() == ErrorKind::PermissionDenied
    };
    UnixStream::connect(&context.paths.socket).is_err_and(is_unread)
}

/// True if somebody listens on a socket. A stopped server with a full queue neither accepts nor refuses: no answer
/// within a second counts as true.
fn is_listening(socket: PathBuf) -> bool {
    let ((sender, found), path) = (mpsc::channel(), socket.clone());
    if threads::start(move || sender.send(UnixStream::connect(path).is_ok())).is_err() {
        return UnixStream::connect(socket).is_ok();
    }
    found.recv_timeout(Duration::from_secs(1)).unwrap_or(true)
}

/// Refuses to end the sessions if the running daemons were not started by `poolctl up`, because this command could not
/// stop those.
fn check_started_by_up(context: &Context) -> Result<(), Error> {
    let lock = &context.paths.up_lock;
    let kept = supervisor_lock::holder(lock).is_some()
        || supervisor_lock::is_orphaned(lock)
        || !started::alive(&context.paths)?.is_empty();
    match health::status(context) {
        Some(left) if !kept => Err(still_runs(&left, false)),
        _ => Ok(()),
    }
}

/// True if this command runs in a session of this pool. All three variables are checked: a command under a lock of
/// another pool keeps the incarnation of the session that it runs in, which is then no session of this pool.
fn is_inside(context: &Context) -> bool {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("POOL_INCARNATION").is_some()
        && variable("POOL_SESSION").is_some()
        && variable("POOL_SOCKET").is_some_and(|socket| socket == context.paths.socket)
}

/// Asks the supervisor to stop the pool. It is outside of all sessions, while this command would end with its session.
fn from_inside(context: &Context) -> Result<(), Error> {
    let failed = |error: process::Error| Error::failed(format!("cannot signal the supervisor: {error}"));
    let refused = |why: &str| {
        let how = "run `poolctl down --stop-sessions` outside of the pool's sessions";
        Err(Error::refused(format!("{why}, and this command ends with its session: {how}")))
    };
    let Some(id) = supervisor_lock::holder(&context.paths.up_lock) else {
        return refused("this pool is not kept by `poolctl up`");
    };
    if builds::outdated_supervisor(context).is_some() {
        return refused("the `poolctl up` of this pool runs an older build");
    }
    let Some(handle) = Handle::open(id).map_err(failed)? else {
        return refused("the `poolctl up` of this pool has just ended");
    };
    context.say("stopping the pool, and this session with it")?;
    handle.signal(Signal::SIGUSR1).map(drop).map_err(failed)
}

/// True if the pool runs, even though a request failed with this error.
fn exists(context: &Context, error: &Error) -> bool {
    let Paths { up_lock, lock, .. } = &context.paths;
    error.code() != ErrorCode::Unavailable
        || supervisor_lock::is_held(up_lock)
        || supervisor_lock::is_held(lock)
}

fn still_runs(left: &Status, stopped: bool) -> Error {
    let pid = left.process.pid;
    Error::failed(if stopped {
        format!("poold (pid {pid}) still answers: another supervisor starts it, stop that one")
    } else {
        format!("poold (pid {pid}) was not started by `poolctl up`: stop it the way it was started")
    })
}

fn tell(context: &Context, stopped: bool, alive: Option<usize>) -> Result<(), Error> {
    if context.style.json {
        return out::json(&json!({"pool": context.paths.pool, "stopped": stopped, "sessions_alive": alive}));
    }
    let pool = &context.paths.pool;
    let live_on = match alive {
        Some(0) | None => String::new(),
        Some(1) => "; 1 session lives on".to_owned(),
        Some(n) => format!("; {n} sessions live on"),
    };
    let what = if stopped { "stopped" } else { "was not running" };
    context.say(&format!("pool {pool} {what}{live_on}"))
}
