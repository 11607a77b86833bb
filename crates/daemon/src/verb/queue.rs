//! `queue purge`: removes a part of the messages in each turn, so that nobody else waits long.

use std::sync::Arc;

use pool::admit;
use protocol::request::Purge;
use protocol::{Reply, Response};

use crate::decide::idempotency::Op;
use crate::engine::Turn;
use crate::engine::context::Daemon;

pub(super) async fn purge(daemon: &Arc<Daemon>, op: &Op, asked: Purge) -> Reply {
    let check = asked.clone();
    let may = move |turn: &mut Turn<'_>| {
        let session = admit::resolve(turn.pool(), &check.session)?;
        admit::may_purge(turn.pool(), session, &check).map(|()| session.id)
    };
    let session = daemon.engine.turn(may).await??;
    let mut messages = 0;
    loop {
        let (asked, operation) = (asked.clone(), op.clone());
        let part = move |turn: &mut Turn<'_>| {
            let events = admit::purge(turn.pool(), session, &asked, turn.now());
            let (forgotten, more) = (events.len() as u64, events.len() == admit::FORGET_AT_ONCE);
            turn.emit_all(events);
            let reply = Ok(Response::Purged { messages: messages + forgotten });
            if !more {
                operation.conclude(turn, &reply);
            }
            (forgotten, more, reply)
        };
        let (forgotten, more, reply) = daemon.engine.turn(part).await?;
        messages += forgotten;
        if !more {
            return reply;
        }
    }
}
