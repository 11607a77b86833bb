//! `restore`: starts a parked, lost or stopped session, or all lost ones.

use std::sync::Arc;

use protocol::request::Restore;
use protocol::{Event, Reply, Response, SessionId};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::sense::tmux_snapshot;
use crate::verb::session_view;
use crate::verb::start::{self, StartOptions};

/// Answers once the session runs. With all lost sessions, answers at once: they are started one after the
/// other.
pub(super) async fn restore(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Restore) -> Reply {
    let Some(wanted) = asked.session else { return restore_all(daemon, op).await };
    let session = session_view::resolve(daemon, wanted).await?;
    if session.lifecycle.holds_slot() || pool::session::is_restarting(&session) {
        return start::ensure_running(daemon, op, session.id).await;
    }
    let options = StartOptions { wait_ms: asked.wait_slot_ms, ..StartOptions::default() };
    start::start_stopped(daemon, op, session.id, options).await
}

async fn restore_all(daemon: &Arc<Daemon>, op: &ClientOperation) -> Reply {
    // A loss that no observation has shown yet counts, too.
    tmux_snapshot::take(daemon).await?;
    start::check(daemon, 0).await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let events =
            pool::session::restore_all(turn.pool(), context.loaded().daemon.restore_spacing, turn.now());
        let lost: Vec<SessionId> = events.iter().filter_map(Event::session).collect();
        turn.emit_all(events);
        let socket = context.tmux_socket();
        let shown = lost
            .iter()
            .filter_map(|id| turn.pool().session(*id))
            .map(|s| session_view::view_of(turn, &context, &socket, s));
        let reply = Ok(Response::Sessions(shown.collect()));
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}
