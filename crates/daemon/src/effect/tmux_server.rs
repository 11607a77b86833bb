//! The readiness of the tmux server for starts: the reasons against it, each with what to do, and the checks before and
//! within a start.

use std::sync::Arc;

use pool::observe::{OutOfReach, is_replaced, out_of_reach};
use protocol::tmux::{NoAnswer, Server, ServerProblem};
use protocol::{OsBytes, Refusal, ServerId, counted};
use tmux::version::OLDEST;

use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;

/// Checks that sessions can be started in the tmux server.
///
/// # Errors
/// Unavailable, if no session can be started in the tmux server; storage where the engine has stopped.
pub(crate) async fn check(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    refuse_if_lasting(daemon, trouble).await
}

/// Checks, before a session is put on record, that no server is out of reach and one answers or may be started. While a
/// server is seen that does not answer, the start itself tells whether it does in time.
///
/// # Errors
/// As [`check`].
pub(crate) async fn check_reachable(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    refuse_if_lasting(daemon, unreachability).await
}

/// Checks, within a start, that the tmux server that answers is the one in which the running sessions are. A session
/// that is started in another server is lost when that server's owner ends it.
///
/// # Errors
/// As [`check`].
pub(crate) async fn check_not_replaced(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    refuse_if_lasting(daemon, replacement).await
}

/// As [`check_not_replaced`], by the last observation alone: tmux is not listed for it.
///
/// # Errors
/// As [`check`].
pub(crate) async fn check_not_replaced_since(daemon: &Arc<Daemon>) -> Result<(), Refusal> {
    refuse(daemon, replacement).await
}

/// Finds the reason against a start, if there is one, by the last observation.
type Find = fn(&Turn<'_>, &Daemon) -> Option<String>;

/// Refuses with the reason that `find` returns. Before that, lists tmux once more, which may show that the reason has
/// gone.
async fn refuse_if_lasting(daemon: &Arc<Daemon>, find: Find) -> Result<(), Refusal> {
    if look(daemon, find).await?.is_none() {
        return Ok(());
    }
    tmux_snapshot::take(daemon).await?;
    refuse(daemon, find).await
}

/// Refuses with the reason that `find` returns, if any, by the last observation.
async fn refuse(daemon: &Arc<Daemon>, find: Find) -> Result<(), Refusal> {
    look(daemon, find).await?.map_or(Ok(()), |why| Err(Refusal::unavailable(why)))
}

async fn look(daemon: &Arc<Daemon>, find: Find) -> Result<Option<String>, Refusal> {
    let context = Arc::clone(daemon);
    daemon.engine.turn(move |turn: &mut Turn<'_>| find(turn, &context)).await
}

/// Returns why a start has found no tmux server, with what to do.
pub(crate) async fn why_none_answers(daemon: &Arc<Daemon>) -> String {
    let mut known = look(daemon, trouble).await.ok().flatten();
    // The last observation may precede the trouble; the next one shows which server is out of reach.
    if known.is_none() && tmux_snapshot::take(daemon).await.is_ok() {
        known = look(daemon, trouble).await.ok().flatten();
    }
    known.unwrap_or_else(|| none_answers(daemon))
}

/// Returns the sentence that no tmux server answers, with what to do.
fn none_answers(daemon: &Daemon) -> String {
    // One of its own would have been started, unless an earlier one lives.
    if daemon.device.start_server {
        return unreachable(&OutOfReach::default());
    }
    if daemon.device.own {
        return "no tmux server answers at the pool's socket: start the server's unit, or, if a server \
                still runs and only its socket was deleted, send that server SIGUSR1"
            .to_owned();
    }
    let socket = daemon.device.socket.display();
    format!(
        "no tmux server answers at {socket}, and the pool starts no server there, as that socket is not its own: \
         `tmux -S {socket} new-session -d` starts one"
    )
}

/// Returns why no session can be started in the tmux server, by the last observation, with what to do.
pub(crate) fn trouble(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    let left = out_of_reach(turn.pool(), turn.volatile);
    match &turn.volatile.observed.state().server {
        Server::Unknown(silence) => Some(no_answer(silence, &daemon.tmux_socket())),
        Server::Up(server) => left.servers.first().map(|old| replaced(*server, *old, left.sessions)),
        Server::Absent if !left.servers.is_empty() && (left.sessions > 0 || daemon.device.start_server) => {
            Some(unreachable(&left))
        }
        Server::Absent => (!daemon.device.start_server).then(|| none_answers(daemon)),
    }
}

/// Returns the reason against a start if nothing answers at the socket, or another server than that of the running
/// sessions.
fn unreachability(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    match &turn.volatile.observed.state().server {
        Server::Unknown(silence) if silence.trouble != ServerProblem::Unreachable => None,
        _ => trouble(turn, daemon),
    }
}

/// Returns the reason against a start if a tmux server answers that is not the one in which the running sessions are.
fn replacement(turn: &Turn<'_>, daemon: &Daemon) -> Option<String> {
    is_replaced(turn.pool(), turn.volatile).then(|| trouble(turn, daemon)).flatten()
}

/// Returns why the server does not answer, with what to do.
pub(crate) fn no_answer(silence: &NoAnswer, socket: &OsBytes) -> String {
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
         it runs is left as it is; end the new one, then `kill -USR1 {old}` makes the old one listen again, or \
         `kill {old}` ends the old one and its sessions",
        counted(sessions as u64, "session")
    )
}

/// Returns the problem of servers that are not proved dead while none answers.
pub(crate) fn unreachable(left: &OutOfReach) -> String {
    let of = match left.sessions {
        0 => String::new(),
        sessions => format!(" of {}", counted(sessions as u64, "session")),
    };
    let pids: Vec<String> = left.servers.iter().map(|server| server.process.pid.to_string()).collect();
    let known = if pids.is_empty() { String::new() } else { format!(" (pid {})", pids.join(", ")) };
    let wake = match pids.as_slice() {
        [] => "send SIGUSR1 to it".to_owned(),
        [only] => format!("`kill -USR1 {only}` makes it listen again"),
        // Only one server can have the socket.
        [most, ..] => format!("`kill -USR1 {most}` makes the one with the most sessions listen again"),
    };
    format!(
        "nothing answers at the tmux socket, and the server{of}{known} is not proved dead; if its socket was deleted, \
         {wake}"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use protocol::ProcId;
    use tmux::fake::Fault;
    use tokio::time::sleep;

    use super::*;
    use crate::run::tests::{TestDaemon, TestProcesses};

    #[tokio::test(start_paused = true)]
    async fn a_server_that_went_out_of_reach_after_the_last_observation_is_named() {
        let test = TestDaemon::start(TestProcesses::default());
        let running = test.run("a").await;
        sleep(Duration::from_secs(1)).await;
        tmux_snapshot::take(&test.daemon).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        test.tmux.fail([Fault::NoServer]);
        let why = why_none_answers(&test.daemon).await;
        let server = running.run.server.unwrap().process.pid;
        assert!(why.contains(&format!("`kill -USR1 {server}`")), "{why}");
    }

    #[test]
    fn a_stranger_that_is_to_stay_is_not_the_only_server_that_can_be_ended() {
        let server = |pid| ServerId { process: ProcId { pid, start: 1 }, started_at: 1 };
        let why = replaced(server(8), server(7), 1);
        assert!(why.contains("`kill -USR1 7` makes") && why.contains("`kill 7` ends the old one"), "{why}");
    }

    #[test]
    fn one_server_alone_is_to_listen_again() {
        let server = |pid| ServerId { process: ProcId { pid, start: 1 }, started_at: 1 };
        let why = |pids: &[u32]| {
            let servers = pids.iter().map(|pid| server(*pid)).collect();
            unreachable(&OutOfReach { servers, sessions: 3 })
        };
        assert!(why(&[7]).contains("(pid 7)") && why(&[7]).contains("`kill -USR1 7` makes it listen"));
        let several = why(&[7, 5]);
        assert!(
            several.contains("(pid 7, 5)") && several.contains("`kill -USR1 7` makes the one"),
            "{several}"
        );
    }
}
