//! `kill`: ends a session, and answers when that is verified.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Kill;

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::{one_turn, termination};

pub(super) async fn kill(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Kill) -> Reply {
    let session =
        termination::begin(daemon, op, (asked.session, asked.grace_ms), pool::session::kill).await?;
    termination::wait(daemon, &session).await?;
    one_turn::conclude_with(daemon, op, session.id).await
}
