//! `label`: sets and removes labels.

use std::sync::Arc;

use protocol::request::Label;
use protocol::{Reply, Session};

use crate::decide::idempotency::ClientOperation;
use crate::engine::{Daemon, Turn};
use crate::verb::one_turn;

pub(super) async fn label(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Label) -> Reply {
    let wanted = asked.session.clone();
    let decide = move |turn: &mut Turn<'_>, session: &Session| {
        let events = pool::session::label(session, &asked)?;
        turn.emit_all(events);
        Ok(())
    };
    one_turn::decide(daemon, op, wanted, decide).await
}
