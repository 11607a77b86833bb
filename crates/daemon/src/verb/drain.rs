//! `drain`: a session takes nothing more, works off its queue, and ends.

use std::sync::Arc;

use protocol::{ErrorCode, Lifecycle, Reason, Refusal, Reply, Session, SessionId, SessionRef};
use tokio::time::Instant;

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::in_one_turn::at_once;
use crate::verb::{shown, start};

/// Answers at once: what is queued is finished first.
pub(crate) async fn drain(daemon: &Arc<Daemon>, op: &Op, wanted: SessionRef) -> Reply {
    let id = shown::find(daemon, wanted.clone()).await?.id;
    let under = lock::current();
    let until = Instant::now() + start::OUTCOME_LIMIT;
    loop {
        wait_while(daemon, id, is_in_passing).await?;
        let decide = move |turn: &mut Turn<'_>, session: &Session| {
            lock::free_for(turn, session.id, under)?;
            let events = pool::admit::drain(turn.pool(), session)?;
            turn.emit_all(events);
            Ok(())
        };
        let reply = at_once(daemon, op, wanted.clone(), decide).await;
        let conflicts = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        let passes = move |turn: &mut Turn<'_>| turn.pool().session(id).is_some_and(is_in_passing);
        // It may have begun to start or to end since it was waited for.
        if !conflicts || Instant::now() >= until || !daemon.engine.turn(passes).await? {
            return reply;
        }
    }
}

/// Waits as long as this holds of a session.
pub(crate) async fn wait_while(
    daemon: &Daemon,
    id: SessionId,
    holds: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let over = move |turn: &mut Turn<'_>| (!turn.pool().session(id).is_some_and(holds)).then_some(());
    daemon.engine.wait_for(Some(start::OUTCOME_LIMIT), over).await
}

pub(crate) fn is_starting(session: &Session) -> bool {
    session.lifecycle == Lifecycle::Starting
}

/// It starts, ends by itself, or is between two runs: what comes of that is not known yet.
pub(crate) fn is_in_passing(session: &Session) -> bool {
    let drains = matches!(session.reason, Some(Reason::Drained | Reason::Killed));
    is_starting(session) || pool::is_between(session) || session.lifecycle == Lifecycle::Draining && !drains
}
