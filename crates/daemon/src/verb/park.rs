//! `park`: ends the program of a session, and frees its slot.

use std::sync::Arc;

use protocol::request::Park;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply};

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::effect::park;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::verb::{ending, shown};

/// Answers when the slot is free.
pub(crate) async fn park(daemon: &Arc<Daemon>, op: &Op, asked: Park) -> Reply {
    let (operation, force, grace_ms) = (op.clone(), asked.force, asked.grace_ms);
    let under = lock::current();
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &asked.session)?.clone();
        lock::free_for(turn, session.id, under)?;
        let events = pool::admit::park(turn.pool(), &session, force)?;
        let tag = session.incarnation.as_ref().map(|run| run.tag).filter(|_| !events.is_empty());
        if let Some(tag) = tag {
            turn.volatile.reaping.forget_verdict(tag);
            if let Some(grace) = grace_ms {
                turn.volatile.reaping.set_grace(tag, grace);
            }
            if !force {
                turn.volatile.reaping.guard(tag);
            }
        }
        operation.begun(turn, session.id);
        turn.emit_all(events);
        let now = turn.pool().session(session.id).cloned();
        Ok((now.unwrap_or(session), tag.filter(|_| !force)))
    };
    let (session, guarded) = daemon.engine.turn(decide).await??;
    let kept = match guarded {
        Some(tag) => park::end_unattended(daemon, session.id, tag).await,
        None => None,
    };
    ending::ended_unless(daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let live = turn.pool().session(id).is_some_and(|s| s.lifecycle == Lifecycle::Live);
        let reply = if live && guarded.is_some() {
            let why = kept.unwrap_or_else(|| "somebody attached to it meanwhile".to_owned());
            let why = format!("{} is not parked: {why}; park --force parks it all the same", session.name);
            Err(Refusal::new(ErrorCode::Conflict, why))
        } else {
            shown::reply(turn, &context, id)
        };
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}
