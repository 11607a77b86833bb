//! `wait`: looks first, then listens.

use std::sync::Arc;
use std::time::Duration;

use protocol::request::{Until, Wait};
use protocol::{ErrorCode, Lifecycle, MessageId, MessageState, Refusal, Reply, Session, SessionId};

use super::{queue, shown};
use crate::context::Daemon;
use crate::engine::Turn;

pub(super) async fn wait(daemon: &Arc<Daemon>, asked: Wait) -> Reply {
    let session = shown::find(daemon, asked.session).await?;
    let (id, until, context) = (session.id, asked.until, Arc::clone(daemon));
    let look = move |turn: &mut Turn<'_>| reached(turn, &context, id, &until);
    let limit = asked.timeout_ms.map(Duration::from_millis);
    daemon.engine.wait_on(id, limit, look).await?
}

/// The message, once it is so far.
fn of_message(
    turn: &Turn<'_>,
    session: &Session,
    id: MessageId,
    so: impl Fn(MessageState) -> bool,
) -> Option<Reply> {
    match turn.pool().message_state(session.id, id) {
        None => {
            let why = format!("no message {id} of {}", session.name);
            Some(Err(Refusal::new(ErrorCode::NotFound, why)))
        }
        Some(state) => so(state).then(|| queue::shown(turn, id)),
    }
}

/// It runs, or it is over and nobody is about to start it.
fn is_settled(turn: &Turn<'_>, session: &Session) -> bool {
    let coming = session.lifecycle.holds_slot()
        || session.budget.due_at.is_some()
        || turn.rest.line.place(session.id).is_some()
        || turn.rest.view.starting.contains(&session.id);
    session.lifecycle == Lifecycle::Live || !coming
}

fn reached(turn: &Turn<'_>, daemon: &Daemon, id: SessionId, until: &Until) -> Option<Reply> {
    let Some(session) = turn.pool().session(id) else {
        let gone = format!("{id} was removed while it was waited for");
        return Some(Err(Refusal::new(ErrorCode::NotFound, gone)));
    };
    match until {
        Until::Exit => (!session.lifecycle.holds_slot()).then(|| shown::reply(turn, daemon, id)),
        Until::Started => is_settled(turn, session).then(|| shown::reply(turn, daemon, id)),
        Until::QueueEmpty => pool::queue::is_empty(turn.pool(), id).then(|| shown::reply(turn, daemon, id)),
        Until::Message(message) => of_message(turn, session, *message, MessageState::is_final),
        Until::Accepted(message) => of_message(turn, session, *message, |state| {
            state.is_final() || matches!(state, MessageState::Accepted | MessageState::InDoubt)
        }),
    }
}
