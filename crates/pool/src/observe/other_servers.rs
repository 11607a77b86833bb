//! Servers that may still live, although another server, or none, answers at the tmux socket.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use protocol::tmux::Server;
use protocol::{Lifecycle, ProcId, ServerId, Session};

use crate::observe::reconcile::has_ended;
use crate::pool::Pool;
use crate::volatile::Volatile;

/// Servers out of reach: the file of their socket is gone, or another server has taken its place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutOfReach {
    /// The servers that are known, those with the most sessions first.
    pub servers: Vec<ServerId>,
    /// Number of sessions that run in these servers, or in a server that is not known.
    pub sessions: usize,
}

/// The servers out of reach, by the last observation; none while it is not known which server answers.
pub fn out_of_reach(pool: &Pool, volatile: &Volatile) -> OutOfReach {
    match volatile.observed.state().server {
        Server::Unknown(_) => OutOfReach::default(),
        Server::Up(server) => {
            let others: Vec<ServerId> =
                running(pool, volatile).filter_map(server_of).filter(|other| *other != server).collect();
            OutOfReach { sessions: others.len(), servers: by_sessions(&others, None) }
        }
        Server::Absent => {
            let missing: Vec<&Session> = missing(pool, volatile).collect();
            let last = seen_last(pool, volatile);
            let used: Vec<ServerId> = missing.iter().copied().filter_map(server_of).collect();
            OutOfReach { sessions: missing.len(), servers: by_sessions(&used, last) }
        }
    }
}

/// The server that may live although nothing answers at the socket: the one with the most sessions, or else the one
/// seen last. The latter counts only if the socket is the pool's `own`: another one may have been configured since.
pub fn server_on_record(pool: &Pool, volatile: &Volatile, own: bool) -> Option<ServerId> {
    let used: Vec<ServerId> = running(pool, volatile).filter_map(server_of).collect();
    by_sessions(&used, seen_last(pool, volatile).filter(|_| own)).first().copied()
}

/// The server that was seen last, unless it is proved dead.
fn seen_last(pool: &Pool, volatile: &Volatile) -> Option<ServerId> {
    pool.server().filter(|server| !volatile.reaping.exited().contains(&server.process))
}

/// Returns the servers of sessions, and `last`, each once, those with the most sessions first.
fn by_sessions(of_sessions: &[ServerId], last: Option<ServerId>) -> Vec<ServerId> {
    let all: BTreeSet<ServerId> = of_sessions.iter().copied().chain(last).collect();
    let mut servers: Vec<ServerId> = all.into_iter().collect();
    servers.sort_by_key(|server| Reverse(of_sessions.iter().filter(|other| *other == server).count()));
    servers
}

/// True if a server answers, and a running session is in another one. A session that is started in the answering
/// server is lost when that server's owner ends it.
pub fn is_replaced(pool: &Pool, volatile: &Volatile) -> bool {
    matches!(volatile.observed.state().server, Server::Up(_)) && out_of_reach(pool, volatile).sessions > 0
}

fn server_of(session: &Session) -> Option<ServerId> {
    session.incarnation.as_ref()?.server
}

/// The sessions that hold a slot and whose server is not proved dead. Two kinds are left out: sessions that are being
/// started, as they have no server yet; and sessions that are being ended and whose programs are proved dead, as only
/// their pane may be left.
fn running<'a>(pool: &'a Pool, volatile: &'a Volatile) -> impl Iterator<Item = &'a Session> {
    let exited = volatile.reaping.exited();
    let is_left = move |s: &&Session| match server_of(s) {
        Some(own) => !exited.contains(&own.process) && !is_over(s, exited),
        None => s.lifecycle != Lifecycle::Starting,
    };
    pool.sessions().filter(|s| s.lifecycle.holds_slot()).filter(is_left)
}

/// True if a session is being ended and its programs are proved dead.
fn is_over(session: &Session, exited: &BTreeSet<ProcId>) -> bool {
    let has_ended = session.incarnation.as_ref().is_some_and(|run| has_ended(run, exited));
    has_ended && session.lifecycle == Lifecycle::Draining
}

/// The running sessions that the last observation does not show. Those started after it do not count.
fn missing<'a>(pool: &'a Pool, volatile: &'a Volatile) -> impl Iterator<Item = &'a Session> {
    let listed = volatile.observed.seen_at().zip(volatile.observed.listed_from());
    let is_older = move |s: &&Session| listed.is_some_and(|(at, from)| pool.moment(at, s.changed_at) < from);
    running(pool, volatile).filter(is_older)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_with_the_most_sessions_is_named_first() {
        let server = |pid| ServerId { process: ProcId { pid, start: 1 }, started_at: 1 };
        let of_sessions = [server(1), server(3), server(2), server(3)];
        assert_eq!(by_sessions(&of_sessions, Some(server(0))), [server(3), server(1), server(2), server(0)]);
        assert_eq!(by_sessions(&[server(2)], Some(server(2))), [server(2)]);
    }
}
