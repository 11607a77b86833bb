//! `label`: sets and removes labels.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Label;

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::one_turn;

pub(super) async fn label(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Label) -> Reply {
    let wanted = asked.session.clone();
    one_turn::decide(daemon, op, wanted, move |_, session| pool::session::label(session, &asked)).await
}
