//! `update`: changes a session's policy.

use std::sync::Arc;

use protocol::request::Update;
use protocol::{Reply, Session};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::one_turn;

pub(super) async fn update(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Update) -> Reply {
    let (context, wanted) = (Arc::clone(daemon), asked.session.clone());
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        let event = pool::session::update(&context.settings(), session, &asked)?;
        turn.emit_all(event);
        Ok(())
    };
    one_turn::decide(daemon, op, wanted, decide).await
}
