//! A session in a reply.

use std::sync::Arc;

use pool::view::{Shown, view};
use protocol::reply::{SessionView, TreeProcess};
use protocol::{OsBytes, Refusal, Reply, Response, Session, SessionId, SessionRef};

use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking;
use crate::host::blocking::Purpose;

/// The most processes of a session that are shown: what fits a frame, and a screen.
const PROCESSES_SHOWN: usize = 1000;

/// A session as it is shown, in the tmux server at this socket.
pub(super) fn shown(
    turn: &Turn<'_>,
    daemon: &Daemon,
    tmux_socket: &OsBytes,
    session: &Session,
) -> SessionView {
    let lock = lock::shown(turn, session.id);
    let observed = &turn.volatile.observed;
    let pane =
        session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(|run| run.pane);
    let current_dir = pane.and_then(|id| observed.state().panes.get(&id)?.current_dir.clone());
    let shown = Shown {
        tmux_socket,
        seen_at: observed.seen_at(),
        lock,
        current_dir,
        processes: Vec::new(),
        usage: None,
        parkable: pool::slots::is_parkable(&daemon.loaded().settings, session),
        slot_wait: turn.volatile.scheduler.waiting.position(session.id),
        waits: crate::decide::blocked::waits(turn, session.id).map(|(_, why)| why),
        confirm: daemon.loaded().settings.agent_of(session).confirm,
    };
    view(turn.pool(), session, shown)
}

/// The living processes of a session, by the process table.
pub(super) async fn processes(session: &Session) -> Vec<TreeProcess> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    let Some(init) = run.and_then(|run| run.init) else { return Vec::new() };
    let read = move || process::tree::processes(init).unwrap_or_default();
    let found = blocking::limited(Purpose::Processes, read).await.unwrap_or_default();
    let shown =
        |p: process::identity::Process| TreeProcess { process: p.id, parent: p.ppid, command: p.comm };
    found.into_iter().take(PROCESSES_SHOWN).map(shown).collect()
}

/// The reply that shows a session.
pub(super) fn reply(turn: &Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let Some(session) = turn.pool().session(id) else {
        return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
    };
    Ok(Response::Session(Box::new(shown(turn, daemon, &daemon.tmux_socket(), session))))
}

/// The session that is meant.
pub(super) async fn find(daemon: &Arc<Daemon>, wanted: SessionRef) -> Result<Session, Refusal> {
    daemon.engine.turn(move |turn| pool::admit::resolve(turn.pool(), &wanted).cloned()).await?
}
