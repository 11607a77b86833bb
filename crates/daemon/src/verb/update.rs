//! `update`: what becomes of a session from now on.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Update;

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::shown;

pub(super) async fn update(daemon: &Arc<Daemon>, op: &Op, asked: Update) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?;
        let id = session.id;
        let event = pool::admit::update(&context.settings(), session, &asked)?;
        turn.emit_all(event);
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decide).await?
}
