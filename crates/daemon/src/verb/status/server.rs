//! The tmux server in `status`: its state, and what to do about a problem.

use pool::observe;
use protocol::reply::TmuxStatus;
use protocol::tmux::Server;

use crate::effect::tmux_server;
use crate::engine::{Daemon, Turn};
use crate::host::machine_sample::MachineSample;
use crate::sense::machine_capacity::near_file_limit;

/// Returns the state of the server; its `detail` is the problem, with what to do about it.
pub(super) fn status(turn: &Turn<'_>, daemon: &Daemon, capacity: MachineSample) -> TmuxStatus {
    let observed = &turn.volatile.observed;
    let (state, server) = match &observed.state().server {
        Server::Up(server) if observe::is_replaced(turn.pool(), turn.volatile) => ("replaced", Some(*server)),
        Server::Up(server) => ("up", Some(*server)),
        Server::Absent => ("absent", None),
        Server::Unknown(silence) => (silence.trouble.as_str(), silence.server),
    };
    TmuxStatus {
        socket: daemon.tmux_socket(),
        state: state.to_owned(),
        detail: problem(turn, daemon, capacity),
        means: observed.transport(),
        open_files: server.and_then(|server| capacity.server_files(server)),
        server,
        seen_at: observed.seen_at(),
    }
}

fn problem(turn: &Turn<'_>, daemon: &Daemon, capacity: MachineSample) -> Option<String> {
    tmux_server::trouble(turn, daemon).or_else(|| match &turn.volatile.observed.state().server {
        Server::Up(server) => near_file_limit(capacity, *server, 0),
        // In a server that is not known: another one may be started beside it.
        Server::Absent => {
            let left = observe::out_of_reach(turn.pool(), turn.volatile);
            (left.sessions > 0).then(|| tmux_server::unreachable(&left))
        }
        Server::Unknown(_) => None,
    })
}
