//! `park`: ends a session's incarnation to free its slot.

use std::sync::Arc;

use protocol::request::Park;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply, Session, SessionId, Tag};

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::effect::park;
use crate::engine::Turn;
use crate::engine::daemon::Daemon;
use crate::verb::transition::{decide_settled, is_ending_for_restart, is_starting};
use crate::verb::{session_view, termination};

/// Answers once the slot is free. Waits for a launch in progress, or for that of a restart: its program may park itself at
/// once, before the launch is recorded. The host of a worker is stopped at any time. Without `--force`, a session with an
/// attached client is not ended.
pub(super) async fn park(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Park) -> Reply {
    let found = session_view::resolve(daemon, asked.session.clone()).await?;
    let waits = |session: &Session| {
        session.worker.is_none() && (is_starting(session) || is_ending_for_restart(session))
    };
    let begin = || begin(daemon, op, (found.id, &asked));
    let (session, guarded) = decide_settled(daemon, found.id, waits, begin).await?;
    let kept = match guarded {
        Some(tag) => park::end_unattended(daemon, session.id, tag).await,
        None => None,
    };
    termination::wait_unless(daemon, &session, |s| s.lifecycle == Lifecycle::Live).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let live = turn.pool().session(id).is_some_and(|s| s.lifecycle == Lifecycle::Live);
        let reply = if live && guarded.is_some() {
            let why = kept.unwrap_or_else(|| "a client attached to it meanwhile".to_owned());
            let why = format!("{} is not parked: {why}; park --force parks it all the same", session.name);
            Err(Refusal::new(ErrorCode::Conflict, why))
        } else {
            session_view::reply(turn, &context, id)
        };
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Commits that the incarnation of a session is to end. Returns the session as it is then, and the tag of an end that a
/// client which attaches meanwhile prevents.
async fn begin(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    (id, asked): (SessionId, &Park),
) -> Result<(Session, Option<Tag>), Refusal> {
    let (operation, force, grace_ms) = (op.clone(), asked.force, asked.grace_ms);
    let (under, usual) = (lock::current(), daemon.settings().grace_ms);
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &id.into())?.clone();
        lock::check_unlocked(turn, session.id, under)?;
        let events = pool::session::park(turn.pool(), &session, force)?;
        let run = session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot());
        if let Some(tag) = run.map(|run| run.tag) {
            termination::expect_end(turn, tag, (grace_ms, usual));
        }
        let tag = session.incarnation.as_ref().map(|run| run.tag).filter(|_| !events.is_empty());
        let guarded = tag.filter(|_| !force);
        if let Some(tag) = guarded {
            turn.volatile.reaping.guard(tag);
        }
        if session.worker.is_some() {
            let now = turn.now();
            turn.volatile.scheduler.pause(session.id, now);
        }
        operation.record_begun(turn, session.id);
        turn.emit_all(events);
        let now = turn.pool().session(session.id).cloned();
        Ok((now.unwrap_or(session), guarded))
    };
    daemon.engine.turn(decide).await?
}
