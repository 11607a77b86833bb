//! `label`.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Label;

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::shown;

pub(crate) async fn label(daemon: &Arc<Daemon>, op: &Op, asked: Label) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?;
        let id = session.id;
        let events = pool::admit::label(session, &asked)?;
        turn.emit_all(events);
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}
