//! The tmux server in `status`: what is the matter with it, and the cure.

use protocol::reply::TmuxStatus;
use protocol::tmux::{Server, Silence, Trouble};
use protocol::{ErrorCode, OsBytes, Refusal, ServerId, Session};

use crate::engine::Turn;
use crate::view::View;

/// Open files that a new session takes of its server, and then some: its terminal, its log, who attaches.
const FILES_PER_SESSION: u64 = 16;

pub(super) fn status(pool: &pool::Pool, view: &View, socket: OsBytes) -> TmuxStatus {
    let elsewhere = elsewhere(pool, view);
    let (state, server) = match &view.state.server {
        Server::Up(server) if elsewhere > 0 => ("replaced", Some(*server)),
        Server::Up(server) => ("up", Some(*server)),
        Server::Absent => ("absent", None),
        Server::Unknown(silence) => (word(silence.trouble), silence.server),
    };
    let detail = problem_of(pool, view, &socket).or_else(|| match &view.state.server {
        Server::Unknown(silence) => Some(silence.detail.clone()),
        _ => None,
    });
    TmuxStatus {
        socket,
        state: state.to_owned(),
        detail,
        means: view.means,
        open_files: server.and_then(open_files),
        server,
        seen_at: view.seen_at,
    }
}

/// What is wrong, and what to do.
pub(super) fn problem(pool: &pool::Pool, view: &View, status: &TmuxStatus) -> Option<String> {
    problem_of(pool, view, &status.socket)
}

fn word(trouble: Trouble) -> &'static str {
    match trouble {
        Trouble::Unknown => "unknown",
        Trouble::Stopped => "stopped",
        Trouble::Spinning => "spinning",
        Trouble::Unreachable => "unreachable",
        Trouble::Full => "full",
        Trouble::Forbidden => "forbidden",
        Trouble::NoTmux => "no_tmux",
    }
}

fn problem_of(pool: &pool::Pool, view: &View, socket: &OsBytes) -> Option<String> {
    match &view.state.server {
        Server::Unknown(silence) => Some(silent(silence, socket)),
        Server::Absent => match missing(pool, view) {
            0 => None,
            running => Some(format!(
                "nothing answers at the tmux socket, and the server of {running} sessions{} is not proved dead; \
                 if its socket was deleted, send SIGUSR1 to the server",
                pool.server().map(|server| format!(" (pid {})", server.process.pid)).unwrap_or_default()
            )),
        },
        Server::Up(server) => match elsewhere(pool, view) {
            0 => nearly_full(*server),
            elsewhere => Some(replaced(pool, *server, elsewhere)),
        },
    }
}

/// What does not answer, and the cure.
fn silent(silence: &Silence, socket: &OsBytes) -> String {
    let pid = silence.server.map_or_else(|| "PID".to_owned(), |server| server.process.pid.to_string());
    let (socket, detail) = (socket.as_path().display(), &silence.detail);
    let cure = match silence.trouble {
        Trouble::Stopped => format!("`kill -CONT {pid}` lets it go on"),
        Trouble::Spinning => format!(
            "if it does not recover, `kill -KILL {pid}` ends it and its sessions, which `poolctl restart` starts again"
        ),
        Trouble::Unreachable => {
            format!("`kill -USR1 {pid}` makes it listen again; tmux-watch does so by itself")
        }
        Trouble::Full => format!(
            "end some of its programs (`kill` their processes); before the next start raise its limit of open \
             files (`ulimit -n`, LimitNOFILE); the server is pid {pid}"
        ),
        Trouble::Forbidden => format!("`chmod u+rwx {socket}` and the directories above it"),
        Trouble::NoTmux => "install tmux, or set [tmux] binary".to_owned(),
        Trouble::Unknown => "`poolctl sync` looks again".to_owned(),
    };
    format!("the tmux server is not seen: {detail}; its sessions are left as they are; {cure}")
}

fn nearly_full(server: ServerId) -> Option<String> {
    let (used, max) = open_files(server).filter(|(used, max)| used + FILES_PER_SESSION > *max)?;
    Some(format!(
        "the tmux server has {used} of {max} files open and takes no new sessions: end some, or start it anew \
         with a higher limit (`ulimit -n`, LimitNOFILE)"
    ))
}

fn replaced(pool: &pool::Pool, server: ServerId, elsewhere: usize) -> String {
    let other = pool.sessions().filter_map(|s| s.incarnation.as_ref()?.server).find(|own| *own != server);
    let old = other.map_or_else(|| "PID".to_owned(), |own| own.process.pid.to_string());
    format!(
        "another tmux server (pid {}) answers at the socket, and that of {elsewhere} sessions (pid {old}) is not \
         proved dead; they are left as they are; end the new one, then `kill -USR1 {old}` makes the old one listen again",
        server.process.pid
    )
}

fn running(pool: &pool::Pool) -> impl Iterator<Item = &Session> {
    pool.sessions().filter(|s| s.lifecycle.holds_slot())
}

/// Sessions that should be seen: what was started since tmux was last seen is not missing.
fn missing(pool: &pool::Pool, view: &View) -> usize {
    running(pool).filter(|s| view.seen_at.is_some_and(|at| s.changed_at < at)).count()
}

/// Sessions in another server than the one that answers.
fn elsewhere(pool: &pool::Pool, view: &View) -> usize {
    let Server::Up(server) = view.state.server else { return 0 };
    let is_elsewhere =
        |s: &&Session| s.incarnation.as_ref().and_then(|run| run.server).is_some_and(|own| own != server);
    running(pool).filter(is_elsewhere).count()
}

fn open_files(server: ServerId) -> Option<(u64, u64)> {
    let vitals = process::vitals::vitals(server.process).ok().flatten()?;
    Some((vitals.open_files?, vitals.open_files_max?))
}

/// Refuses what would bring the server to the end of its descriptors: there it hangs for good.
///
/// # Errors
/// Refused.
pub(crate) fn has_room(turn: &Turn<'_>) -> Result<(), Refusal> {
    let full = match turn.rest.view.state.server {
        Server::Up(server) => nearly_full(server),
        Server::Absent | Server::Unknown(_) => None,
    };
    full.map_or(Ok(()), |why| Err(Refusal::new(ErrorCode::Refused, why)))
}
