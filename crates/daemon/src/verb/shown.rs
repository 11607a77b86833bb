//! A session in a reply.

use std::sync::Arc;

use pool::view::{Shown, view};
use protocol::reply::{SessionView, TreeProcess};
use protocol::{OsBytes, Refusal, Reply, Response, Session, SessionId, SessionRef};

use crate::context::Daemon;
use crate::engine::Turn;
use crate::locking;
use crate::slow::{self, Purpose};

/// The most processes of a session that are shown: what fits a frame, and a screen.
const PROCESSES_SHOWN: usize = 1000;

/// A session as it is shown, in the tmux server at this socket.
pub(super) fn shown(
    turn: &Turn<'_>,
    daemon: &Daemon,
    tmux_socket: &OsBytes,
    session: &Session,
) -> SessionView {
    let lock = locking::shown(turn, session.id);
    let seen = &turn.rest.view;
    let pane =
        session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).and_then(|run| run.pane);
    let current_dir = pane.and_then(|id| seen.state.panes.get(&id)?.current_dir.clone());
    let shown = Shown {
        tmux_socket,
        seen_at: seen.seen_at,
        lock,
        current_dir,
        processes: Vec::new(),
        usage: None,
        parkable: pool::slots::is_parkable(&daemon.loaded().settings, session),
        slot_wait: turn.rest.line.place(session.id),
        waits: crate::hooks::waits(turn, session.id).map(|(_, why)| why),
        confirm: daemon.loaded().settings.agent_of(session).confirm,
    };
    view(turn.pool(), session, shown)
}

/// The living processes of a session, by the process table.
pub(super) async fn processes(session: &Session) -> Vec<TreeProcess> {
    let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
    let Some(init) = run.and_then(|run| run.init) else { return Vec::new() };
    let read = move || process::tree::processes(init).unwrap_or_default();
    let found = slow::limited(Purpose::Processes, read).await.unwrap_or_default();
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

/// The word for where a session is in its life.
pub(crate) fn word(lifecycle: protocol::Lifecycle) -> &'static str {
    use protocol::Lifecycle::{Draining, Failed, Live, Lost, Parked, Starting, Stopped};
    match lifecycle {
        Starting => "starting",
        Live => "live",
        Draining => "ending",
        Parked => "parked",
        Stopped => "stopped",
        Lost => "lost",
        Failed => "failed",
    }
}
