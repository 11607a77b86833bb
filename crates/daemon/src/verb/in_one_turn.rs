//! Verbs that are decided within one turn.

use std::sync::Arc;

use protocol::{Refusal, Reply, Session, SessionRef};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::shown;

/// What is decided within one turn, and answered with the session as it is then.
pub(crate) async fn at_once(
    daemon: &Arc<Daemon>,
    op: &Op,
    wanted: SessionRef,
    decide: impl FnOnce(&mut Turn<'_>, &Session) -> Result<(), Refusal> + Send + 'static,
) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decided = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        decide(turn, &session)?;
        let reply = shown::reply(turn, &context, session.id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(decided).await?
}
