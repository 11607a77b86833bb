//! `restore`: starts what was lost or parked.

use std::sync::Arc;

use protocol::request::Restore;
use protocol::{Event, Reply, Response, SessionId};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::snapshot;
use crate::verb::start::Again;
use crate::verb::{shown, start};

/// One: answers when it runs. All that were lost: they are due from now on, one after the other.
pub(crate) async fn restore(daemon: &Arc<Daemon>, op: &Op, asked: Restore) -> Reply {
    let Some(wanted) = asked.session else { return restore_all(daemon, op).await };
    let session = shown::find(daemon, wanted).await?;
    let how = Again { wait_ms: asked.wait_slot_ms, ..Again::default() };
    if session.lifecycle.holds_slot() || pool::is_between(&session) {
        return start::existing(daemon, op, session.id).await;
    }
    start::start_again(daemon, op, session.id, how).await
}

pub(crate) async fn restore_all(daemon: &Arc<Daemon>, op: &Op) -> Reply {
    // What is lost is known once somebody has looked.
    snapshot::take(daemon).await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let events = pool::admit::restore_all(turn.pool(), context.loaded().life.spacing, turn.now());
        let lost: Vec<SessionId> = events.iter().filter_map(Event::session).collect();
        turn.emit_all(events);
        let socket = context.tmux_socket();
        let shown = lost
            .iter()
            .filter_map(|id| turn.pool().session(*id))
            .map(|s| shown::shown(turn, &context, &socket, s));
        let reply = Ok(Response::Sessions(shown.collect()));
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}
