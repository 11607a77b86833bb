//! Sessions in replies.

use std::sync::Arc;

use pool::session::{ViewInputs, view};
use protocol::reply::TreeProcess;
use protocol::request::List;
use protocol::{OsBytes, Refusal, Reply, Response, Session, SessionId, SessionRef, SessionView, Size};

use crate::decide::{blocked, lock};
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::Purpose;

/// Heartbeats of the watcher after whose absence nothing counts as observed.
const HEARTBEATS_MISSED: u32 = 2;

/// Maximum number of processes shown of a session: fits a frame, and a screen.
const PROCESSES_SHOWN: usize = 1000;

/// Returns the view of a session whose tmux server listens at `tmux_socket`.
pub(super) fn view_of(
    turn: &Turn<'_>,
    daemon: &Daemon,
    tmux_socket: &OsBytes,
    session: &Session,
) -> SessionView {
    let lock = lock::view(turn, session.id);
    let observed = &turn.volatile.observed;
    let pane = session.running().and_then(|run| observed.pane_of(run));
    let current_dir = pane.and_then(|pane| pane.current_dir.clone());
    let loaded = daemon.loaded();
    let agent = loaded.settings.agent_of(session);
    let silence = loaded.daemon.watch_heartbeat * HEARTBEATS_MISSED;
    let is_silent = observed.is_silent(turn.pool(), turn.now(), silence);
    let shown = ViewInputs {
        now: turn.now(),
        tmux_socket,
        tmux_name: pool::observe::tmux_name(turn.pool(), observed, session),
        seen_at: observed.seen_at(),
        output_at: turn.volatile.agents.output_at(session.id),
        lock,
        current_dir,
        processes: Vec::new(),
        usage: None,
        parkable: pool::slots::is_parkable(&loaded.settings, session),
        slot_wait: turn.volatile.scheduler.waiting.position(session.id),
        waits: blocked::blocked_prompt(turn, &loaded.settings, session.id).map(|(_, why)| why),
        confirm: agent.confirm,
        error_patterns: &agent.error_patterns,
        transport_health: pool::observe::transport_health(
            (turn.pool(), turn.now()),
            observed,
            session,
            is_silent,
        ),
    };
    let mut view = view(turn.pool(), session, shown);
    if let Some(pane) = pane {
        view.session.spec.size = Size { cols: pane.width, rows: pane.height };
    }
    let drains = pool::slots::drain_waits_for(turn.volatile, session);
    view.session.detail = drains.or(view.session.detail);
    if session.worker.is_some() {
        // A worker's queue is all that waits for it, not only what is sent to it.
        view.queue.queued = pool::worker::waiting(turn.pool(), session);
    }
    view
}

/// Returns the views of the sessions that pass a filter.
pub(super) fn listed(turn: &Turn<'_>, daemon: &Daemon, filter: &List) -> Vec<SessionView> {
    let socket = daemon.tmux_socket();
    // Views are large: a growing vector would copy them repeatedly.
    let mut views = Vec::with_capacity(turn.pool().sessions().count());
    let listed = turn.pool().sessions().filter(|s| pool::session::matches_filter(s, filter));
    views.extend(listed.map(|s| view_of(turn, daemon, &socket, s)));
    views
}

/// Returns the live processes of a session, from the process table.
pub(super) async fn processes(daemon: &Daemon, session: &Session) -> Vec<TreeProcess> {
    let run = session.running();
    let Some(init) = run.and_then(|run| run.init) else { return Vec::new() };
    let table = daemon.processes();
    let read = move || table.descendants(init);
    let found = daemon.blocking.with_timeout(Purpose::Processes, read).await.unwrap_or_default();
    let shown =
        |p: process::identity::Process| TreeProcess { process: p.id, parent: p.ppid, command: p.comm };
    found.into_iter().take(PROCESSES_SHOWN).map(shown).collect()
}

/// Returns the reply that shows a session.
pub(super) fn reply(turn: &Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let session = pool::session::get(turn.pool(), id)?;
    Ok(Response::Session(Box::new(view_of(turn, daemon, &daemon.tmux_socket(), session))))
}

/// Returns the session that a reference names.
///
/// # Errors
/// Not found, or ambiguous; storage, where the engine has stopped.
pub(super) async fn resolve(daemon: &Arc<Daemon>, wanted: SessionRef) -> Result<Session, Refusal> {
    daemon.engine.turn(move |turn| pool::session::resolve(turn.pool(), &wanted).cloned()).await?
}
