//! `pin` and `unpin`.

use std::sync::Arc;

use protocol::request::Pin;
use protocol::{Reply, Session};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::in_one_turn::at_once;

/// `pin` and `unpin`.
pub(crate) async fn pin(daemon: &Arc<Daemon>, op: &Op, asked: Pin) -> Reply {
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        turn.emit_all(pool::admit::pin(session, asked.pinned));
        Ok(())
    };
    at_once(daemon, op, asked.session, decide).await
}
