//! `pin` and `unpin`.

use std::sync::Arc;

use protocol::Reply;
use protocol::request::Pin;

use crate::decide::idempotency::ClientOperation;
use crate::engine::Daemon;
use crate::verb::one_turn;

pub(super) async fn pin(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Pin) -> Reply {
    let Pin { session: wanted, pinned } = asked;
    one_turn::decide(daemon, op, wanted, move |_, session| {
        pool::worker::check_no_host(session)?;
        Ok(pool::session::pin(session, pinned))
    })
    .await
}
