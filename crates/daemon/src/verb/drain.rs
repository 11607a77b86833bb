//! `drain`: the session refuses further messages, works off its queue, and ends.

use std::sync::Arc;

use protocol::policy::DrainDeadline;
use protocol::request::Drain;
use protocol::{ErrorCode, Reply, Session};
use tokio::time::Instant;

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::verb::start::OUTCOME_LIMIT;
use crate::verb::transition::{is_in_transition, wait_while};
use crate::verb::{one_turn, session_view};

/// Answers at once: queued messages are processed before the session ends.
pub(super) async fn drain(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Drain) -> Reply {
    let Drain { session: wanted, deadline_ms } = asked;
    let id = session_view::resolve(daemon, wanted.clone()).await?.id;
    let under = lock::current();
    let deadline = Instant::now() + OUTCOME_LIMIT;
    loop {
        wait_while(daemon, id, is_in_transition).await?;
        let decide = move |turn: &mut Turn<'_>, session: &Session| {
            lock::check_unlocked(turn, session.id, under)?;
            let deadline = deadline_ms.map(|after_ms| DrainDeadline { since: turn.now(), after_ms });
            let events = pool::session::drain(turn.pool(), session, deadline)?;
            turn.emit_all(events);
            Ok(())
        };
        let reply = one_turn::decide(daemon, op, wanted.clone(), decide).await;
        let conflicts = reply.as_ref().is_err_and(|refusal| refusal.code == ErrorCode::Conflict);
        let passes = move |turn: &mut Turn<'_>| turn.pool().session(id).is_some_and(is_in_transition);
        // The session may have begun to start or to end after the wait.
        if !conflicts || Instant::now() >= deadline || !daemon.engine.turn(passes).await? {
            return reply;
        }
    }
}
