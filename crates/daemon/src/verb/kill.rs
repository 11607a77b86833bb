//! `kill`: ends a session, and answers when that is verified.

use crate::verb::ending::{Admit, doom, ended};
use std::sync::Arc;

use protocol::Reply;
use protocol::request::Kill;

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;

use crate::verb::shown;

pub(crate) async fn kill(daemon: &Arc<Daemon>, op: &Op, asked: Kill) -> Reply {
    let admit: Admit = |session| Ok(pool::admit::kill(session));
    let session = doom(daemon, op, (asked.session, asked.grace_ms), admit).await?;
    ended(daemon, &session).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}
