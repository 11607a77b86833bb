//! `park`: ends a session's incarnation to free its slot.

use std::sync::Arc;

use protocol::request::Park;
use protocol::{Lifecycle, Reason, Refusal, Reply, Session, SessionId, Tag};

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::effect::park;
use crate::engine::{Daemon, Turn};
use crate::verb::transition::{decide_settled, is_starting_or_restarting};
use crate::verb::{session_view, termination};

/// Answers once the slot is free. Waits for a launch in progress, also for that of a restart: a program may park itself
/// before its own launch is recorded. The host of a worker is stopped without waiting. Without `--force`, a session
/// with an attached client is not ended.
pub(super) async fn park(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Park) -> Reply {
    let found = session_view::resolve(daemon, op.session(&asked.session)).await?;
    let waits = |session: &Session| session.worker.is_none() && is_starting_or_restarting(session);
    let begin = || begin(daemon, op, (found.id, &asked));
    let Begun { session, ends, guarded } = decide_settled(daemon, found.id, waits, begin).await?;
    let kept = match ends.filter(|_| guarded) {
        Some(tag) => park::end_unattended(daemon, session.id, tag).await,
        None => None,
    };
    let is_decided = |s: &Session| s.lifecycle == Lifecycle::Live || is_restarted(s);
    termination::wait_unless(daemon, &session, is_decided).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let now = turn.pool().session(id);
        let live = now.filter(|s| s.lifecycle == Lifecycle::Live);
        let continues = ends.is_some() && live.and_then(|s| Some(s.incarnation.as_ref()?.tag)) == ends;
        let runs_on = now.is_some_and(|s| is_restarted(s) || is_starting_or_live(s));
        let reply = if ends.is_some() && now.is_some_and(is_restarted) {
            let why = format!("{} was restarted before it was parked", session.name);
            Err(Refusal::conflict(why))
        } else if continues || kept.is_some() && runs_on {
            let by_silence = kept.as_ref().is_some_and(|kept| kept.by_silence);
            let why = kept.map_or_else(
                || "something would be lost, or a client attached meanwhile".to_owned(),
                |kept| kept.why,
            );
            let why = format!("{} is not parked: {why}; park --force parks it all the same", session.name);
            Err(if by_silence { Refusal::unavailable(why) } else { Refusal::conflict(why) })
        } else {
            session_view::reply(turn, &context, id)
        };
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

fn is_starting_or_live(session: &Session) -> bool {
    matches!(session.lifecycle, Lifecycle::Starting | Lifecycle::Live)
}

/// True if a restart has overtaken the parking of a session.
fn is_restarted(session: &Session) -> bool {
    session.reason == Some(Reason::Restarted)
        && matches!(session.lifecycle, Lifecycle::Draining | Lifecycle::Stopped)
}

/// A parking that is committed.
struct Begun {
    /// The session as it is then.
    session: Session,
    /// The incarnation that ends; none if none runs.
    ends: Option<Tag>,
    /// True if this request decided the parking, which is then prevented by a possible loss or by a client that
    /// attaches.
    guarded: bool,
}

/// Commits that the incarnation of a session is to end. A forced parking does not wait for the decision on one that is
/// in progress.
async fn begin(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    (id, asked): (SessionId, &Park),
) -> Result<Begun, Refusal> {
    let (operation, force, grace_ms) = (op.clone(), asked.force, asked.grace_ms);
    let (under, usual) = (lock::current(), daemon.settings().grace_ms);
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &id.into())?.clone();
        lock::check_unlocked(turn, session.id, under)?;
        // This repeats a request from before a restart of the daemon: the incarnation that it meant is parked and has
        // ended.
        if operation.is_older_than_run(turn, &session) {
            return Ok(Begun { session, ends: None, guarded: false });
        }
        let events = pool::session::park(turn.pool(), &session, force)?;
        let run = session.running();
        let ends = run.map(|run| run.tag);
        let guarded = !force && !events.is_empty();
        if let Some(tag) = ends {
            termination::expect_end(turn, tag, (grace_ms, usual));
            if guarded {
                turn.volatile.reaping.guard(tag);
            } else if force {
                turn.volatile.reaping.end_guard(tag);
            }
        }
        if session.worker.is_some() {
            let now = turn.now();
            turn.volatile.scheduler.pause(session.id, now);
        }
        operation.record_begun(turn, session.id);
        turn.emit_all(events);
        let now = turn.pool().session(session.id).cloned();
        Ok(Begun { session: now.unwrap_or(session), ends, guarded })
    };
    daemon.engine.turn(decide).await?
}
