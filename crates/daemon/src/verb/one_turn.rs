//! Operations that are decided within one turn and answered with the session.

use std::sync::Arc;

use protocol::{Event, Refusal, Reply, Session, SessionId, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::session_view;

/// Runs `decide` in a turn, in which what it decides happens, and answers with the session as it is then.
pub(super) async fn decide<E: IntoIterator<Item = Event>>(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    wanted: SessionRef,
    decide: impl FnOnce(&mut Turn<'_>, &Session) -> Result<E, Refusal> + Send + 'static,
) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decided = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &wanted)?.clone();
        let events = decide(turn, &session)?;
        turn.emit_all(events);
        let reply = session_view::reply(turn, &context, session.id);
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(decided).await?
}

/// Concludes an operation with the session as it is now.
pub(super) async fn conclude_with(daemon: &Arc<Daemon>, op: &ClientOperation, id: SessionId) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = session_view::reply(turn, &context, id);
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}
