//! `update`: changes a session's policy.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Update;

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::one_turn;

pub(super) async fn update(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Update) -> Reply {
    let (context, wanted) = (Arc::clone(daemon), asked.session.clone());
    one_turn::decide(daemon, op, wanted, move |_, session| {
        pool::session::update(&context.settings(), session, &asked)
    })
    .await
}
