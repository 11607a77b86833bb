//! `dismiss`: what a session asks is no longer listed as waiting for a person.

use std::sync::Arc;

use protocol::{Reply, Session, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::one_turn;

pub(super) async fn dismiss(daemon: &Arc<Daemon>, op: &ClientOperation, of: SessionRef) -> Reply {
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        let now = turn.now();
        let (pool, volatile) = turn.state();
        let event = pool::agent::dismiss(pool, volatile, session, now)?;
        turn.emit_all(event);
        Ok(())
    };
    one_turn::decide(daemon, op, of, decide).await
}
