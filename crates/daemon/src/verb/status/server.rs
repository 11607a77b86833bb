//! The tmux server in `status`: its state, and what to do about a problem.

use pool::Volatile;
use protocol::reply::TmuxStatus;
use protocol::tmux::{NoAnswer, Server, ServerProblem};
use protocol::{Lifecycle, OsBytes, ServerId, Session, counted};
use tmux::version::OLDEST;

use crate::host::machine_sample::MachineSample;
use crate::sense::machine_capacity::near_file_limit;

/// The volatile state, with the last observation of tmux, and the last sample of the machine.
pub(super) type Observation<'a> = (&'a Volatile, MachineSample);

pub(super) fn status(pool: &pool::Pool, observation: Observation<'_>, socket: OsBytes) -> TmuxStatus {
    let (Volatile { observed, .. }, capacity) = observation;
    let elsewhere = on_other_server(pool, observation);
    let (state, server) = match &observed.state().server {
        Server::Up(server) if !elsewhere.is_empty() => ("replaced", Some(*server)),
        Server::Up(server) => ("up", Some(*server)),
        Server::Absent => ("absent", None),
        Server::Unknown(silence) => (silence.trouble.as_str(), silence.server),
    };
    let detail = problem(pool, observation, &socket).or_else(|| match &observed.state().server {
        Server::Unknown(silence) => Some(silence.detail.clone()),
        _ => None,
    });
    TmuxStatus {
        socket,
        state: state.to_owned(),
        detail,
        means: observed.transport(),
        open_files: server.and_then(|server| capacity.server_files(server)),
        server,
        seen_at: observed.seen_at(),
    }
}

/// Returns the problem, with what to do about it.
pub(super) fn problem(pool: &pool::Pool, observation: Observation<'_>, socket: &OsBytes) -> Option<String> {
    let (Volatile { observed, .. }, capacity) = observation;
    match &observed.state().server {
        Server::Unknown(silence) => Some(no_answer(silence, socket)),
        Server::Absent => match missing(pool, observation) {
            0 => None,
            running => Some(format!(
                "nothing answers at the tmux socket, and the server of {}{} is not proved dead; if its socket \
                 was deleted, send SIGUSR1 to the server",
                counted(running as u64, "session"),
                pool.server().map(|server| format!(" (pid {})", server.process.pid)).unwrap_or_default()
            )),
        },
        Server::Up(server) => match on_other_server(pool, observation).as_slice() {
            [] => near_file_limit(capacity, *server, 0),
            others @ [old, ..] => Some(replaced(*server, *old, others.len())),
        },
    }
}

/// Returns why the server does not answer, with what to do.
pub(in crate::verb) fn no_answer(silence: &NoAnswer, socket: &OsBytes) -> String {
    let pid = silence.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    let (socket, detail) = (socket.as_path().display(), &silence.detail);
    let remedy = match silence.trouble {
        ServerProblem::Stopped => format!("`kill -CONT {pid}` lets it go on"),
        ServerProblem::Spinning => format!(
            "if it does not recover, `kill -KILL {pid}` ends it and its sessions, which `poolctl restart` \
             starts again"
        ),
        ServerProblem::Unreachable => {
            format!("`kill -USR1 {pid}` makes it listen again; tmux-watch does so by itself")
        }
        ServerProblem::Full => format!(
            "end some of its programs (`kill` their processes); before the next start raise its limit of \
             open files (`ulimit -n`, LimitNOFILE); the server is pid {pid}"
        ),
        ServerProblem::Forbidden => format!("`chmod u+rwx {socket}` and the directories above it"),
        ServerProblem::NoTmux => format!("install tmux {OLDEST} or newer, or set [tmux] binary"),
        ServerProblem::Unknown => "`poolctl sync` looks again".to_owned(),
    };
    format!("the tmux server is not seen: {detail}; its sessions are left as they are; {remedy}")
}

/// Returns the problem of another server at the socket of one that is not proved dead.
fn replaced(server: ServerId, old: ServerId, sessions: usize) -> String {
    let (new, old) = (server.process.pid, old.process.pid);
    format!(
        "another tmux server (pid {new}) answers at the socket, and that of {} (pid {old}) is not proved dead; what \
         it runs is left as it is; end the new one, then `kill -USR1 {old}` makes the old one listen again",
        counted(sessions as u64, "session")
    )
}

/// Returns the sessions that hold a slot and whose server is not proved dead. Sessions that are being started are left
/// out, as they have no server yet. What is left of all others is ended by the reaper.
fn running<'a>(pool: &'a pool::Pool, volatile: &'a Volatile) -> impl Iterator<Item = &'a Session> {
    let exited = volatile.reaping.exited();
    let server = |s: &Session| s.incarnation.as_ref().and_then(|run| run.server);
    let is_left = move |s: &&Session| match server(s) {
        Some(own) => !exited.contains(&own.process),
        None => s.lifecycle != Lifecycle::Starting,
    };
    pool.sessions().filter(|s| s.lifecycle.holds_slot()).filter(is_left)
}

/// Returns the number of running sessions that the last observation does not show. Those started after it do
/// not count.
fn missing(pool: &pool::Pool, (volatile, _): Observation<'_>) -> usize {
    let listed = volatile.observed.seen_at().zip(volatile.observed.listed_from());
    let is_older = |s: &&Session| listed.is_some_and(|(at, from)| pool.moment(at, s.changed_at) < from);
    running(pool, volatile).filter(is_older).count()
}

/// Returns the servers of the running sessions that are not in the one that answers.
fn on_other_server(pool: &pool::Pool, (volatile, _): Observation<'_>) -> Vec<ServerId> {
    let Server::Up(server) = volatile.observed.state().server else { return Vec::new() };
    let own = running(pool, volatile).filter_map(|s| s.incarnation.as_ref()?.server);
    own.filter(|own| *own != server).collect()
}
