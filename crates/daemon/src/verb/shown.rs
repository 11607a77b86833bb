//! A session in a reply.

use std::sync::Arc;

use pool::view::{Shown, view};
use protocol::reply::SessionView;
use protocol::{OsBytes, Refusal, Reply, Response, Session, SessionId, SessionRef};

use crate::context::Daemon;
use crate::engine::Turn;

/// A session as it is shown, in the tmux server at this socket.
pub(super) fn shown(turn: &Turn<'_>, tmux_socket: &OsBytes, session: &Session) -> SessionView {
    let lock = turn.rest.locks.holder(session.id).map(|(token, what)| (token, what.to_owned()));
    view(turn.pool(), session, Shown { tmux_socket, seen_at: turn.rest.view.seen_at, lock })
}

/// The reply that shows a session.
pub(super) fn reply(turn: &Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let Some(session) = turn.pool().session(id) else {
        return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
    };
    Ok(Response::Session(Box::new(shown(turn, &daemon.tmux_socket(), session))))
}

/// The session that is meant.
pub(super) async fn find(daemon: &Arc<Daemon>, wanted: SessionRef) -> Result<Session, Refusal> {
    daemon.engine.turn(move |turn| pool::admit::resolve(turn.pool(), &wanted).cloned()).await?
}
