//! `dismiss`: what a session asks is no longer listed as waiting for a person.

use std::sync::Arc;

use protocol::{Reply, SessionRef};

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::one_turn;

pub(super) async fn dismiss(daemon: &Arc<Daemon>, op: &ClientOperation, of: SessionRef) -> Reply {
    one_turn::decide(daemon, op, of, |turn, session| {
        let now = turn.now();
        let (pool, volatile) = turn.state();
        pool::agent::dismiss(pool, volatile, session, now)
    })
    .await
}
