//! `pin` and `unpin`.

use std::sync::Arc;

use protocol::request::Pin;
use protocol::{Reply, Session};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::one_turn;

pub(super) async fn pin(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Pin) -> Reply {
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        pool::worker::check_no_host(session)?;
        turn.emit_all(pool::session::pin(session, asked.pinned));
        Ok(())
    };
    one_turn::decide(daemon, op, asked.session, decide).await
}
