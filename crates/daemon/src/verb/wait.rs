//! `wait`: looks first, then listens.

use std::sync::Arc;
use std::time::Duration;

use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Refusal, Reply, Response, SessionId};

use super::shown;
use crate::context::Daemon;
use crate::engine::Turn;

pub(super) async fn wait(daemon: &Arc<Daemon>, asked: Wait) -> Reply {
    let session = shown::find(daemon, asked.session).await?;
    let (id, until, context) = (session.id, asked.until, Arc::clone(daemon));
    let look = move |turn: &mut Turn<'_>| reached(turn, &context, id, &until);
    let limit = asked.timeout_ms.map(Duration::from_millis);
    daemon.engine.wait_for(limit, look).await?
}

fn reached(turn: &Turn<'_>, daemon: &Daemon, id: SessionId, until: &Until) -> Option<Reply> {
    let Some(session) = turn.pool().session(id) else {
        let gone = format!("{id} was removed while it was waited for");
        return Some(Err(Refusal::new(ErrorCode::NotFound, gone)));
    };
    match until {
        Until::Exit => (!session.lifecycle.holds_slot()).then(|| shown::reply(turn, daemon, id)),
        Until::QueueEmpty => pool::queue::is_empty(turn.pool(), id).then(|| shown::reply(turn, daemon, id)),
        Until::Message(message) => match turn.pool().message(*message).filter(|m| m.session == id) {
            None => Some(Err(Refusal::new(
                ErrorCode::NotFound,
                format!("no message {message} of {}", session.name),
            ))),
            Some(found) => found.state.is_final().then(|| Ok(Response::Message(Box::new(found.clone())))),
        },
    }
}
