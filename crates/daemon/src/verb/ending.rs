//! Ends of incarnations, as all verbs share them: the reaper ends what `poold` names, and the verb answers when that is verified.

use std::sync::Arc;
use std::time::Duration;

use protocol::reap::Outcome;
use protocol::{ErrorCode, Refusal, Session, SessionId, SessionRef, Tag};

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};

/// How long a reaper may take to appear before the daemon does without.
pub(crate) const REAPER_LIMIT: Duration = Duration::from_secs(1);

/// And after the daemon's own start, which it finds out by trying again: its longest pause between two tries, and some.
pub(crate) const REAPER_RETURN: Duration = Duration::from_secs(5);

/// How long an end may take beyond its grace: the reaper's verification and the waiting line.
pub(crate) const END_SLACK: Duration = Duration::from_secs(15);

pub(crate) type Admit = fn(&Session) -> Result<Vec<protocol::Event>, Refusal>;

/// Commits that an incarnation is to end, and answers with the session as it is then.
pub(crate) async fn doom(
    daemon: &Arc<Daemon>,
    op: &Op,
    (wanted, grace_ms): (SessionRef, Option<u64>),
    admit: Admit,
) -> Result<Session, Refusal> {
    let (op, under) = (op.clone(), lock::current());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        lock::free_for(turn, session.id, under)?;
        let events = admit(&session)?;
        if let Some(tag) =
            session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).map(|i| i.tag)
        {
            turn.volatile.reaping.forget_verdict(tag);
            if let Some(grace) = grace_ms {
                turn.volatile.reaping.set_grace(tag, grace);
            }
        }
        // What does not run is only begun with its next incarnation.
        if session.lifecycle.holds_slot() {
            op.begun(turn, session.id);
        }
        turn.emit_all(events);
        turn.pool().session(session.id).cloned().ok_or_else(|| pool::admit::not_found(turn.pool(), &wanted.0))
    };
    daemon.engine.turn(decide).await?
}

/// Waits until the incarnation is verified gone, or nobody can say so.
pub(crate) async fn ended(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    ended_unless(daemon, session, |_| false).await
}

/// The same, or until it is so with the session.
pub(crate) async fn ended_unless(
    daemon: &Arc<Daemon>,
    session: &Session,
    so: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let Some(run) = session.incarnation.clone().filter(|_| session.lifecycle.holds_slot()) else {
        return Ok(());
    };
    let (id, tag) = (session.id, run.tag);
    let reaper = move |turn: &mut Turn<'_>| {
        (over(turn, id, tag, so).is_some() || turn.volatile.reaping.has_reaper()).then_some(())
    };
    let limit = REAPER_LIMIT.max(REAPER_RETURN.saturating_sub(daemon.started.elapsed()));
    match daemon.engine.wait_for(Some(limit), reaper).await {
        Ok(()) => {}
        Err(refusal) if refusal.code == ErrorCode::Timeout => return without_reaper(daemon, session).await,
        Err(refusal) => return Err(refusal),
    }
    let grace = daemon.engine.turn(move |turn| turn.volatile.reaping.grace(tag)).await?;
    let limit = Duration::from_millis(grace.unwrap_or(daemon.settings().grace_ms)) + END_SLACK;
    let verdict = daemon.engine.wait_for(Some(limit), move |turn| over(turn, id, tag, so)).await;
    match verdict {
        Ok(verdict) => verdict,
        Err(refusal) if refusal.code == ErrorCode::Timeout => Err(Refusal::new(
            ErrorCode::Timeout,
            format!("{} is not verified gone yet; the reaper goes on", session.name),
        )),
        Err(refusal) => Err(refusal),
    }
}

/// Whether the incarnation is over, and if the reaper could not end it, why.
pub(crate) fn over(
    turn: &Turn<'_>,
    id: SessionId,
    tag: Tag,
    so: fn(&Session) -> bool,
) -> Option<Result<(), Refusal>> {
    let current = turn
        .pool()
        .session(id)
        .filter(|s| s.lifecycle.holds_slot() && s.incarnation.as_ref().is_some_and(|i| i.tag == tag));
    if current.is_none_or(so) {
        return Some(Ok(()));
    }
    let failed = |what: String| Some(Err(Refusal::new(ErrorCode::Failed, what)));
    match turn.volatile.reaping.verdict(tag)? {
        Outcome::Gone { .. } | Outcome::Spared { .. } => None,
        Outcome::Survivors { left } => failed(format!("not all of it is gone; left: {}", left.join(", "))),
        Outcome::Refused { why } => failed(format!("nothing was done: {why}")),
        Outcome::Untouched { why } => {
            failed(format!("nothing was done: {why}; it stays draining and is tried again"))
        }
    }
}

/// Nobody is there to verify: removes the pane, which hangs up its programs, and says so.
pub(crate) async fn without_reaper(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let grant = daemon.engine.lock_inside(session.id, "kill").await?;
    let pane = session.incarnation.as_ref().and_then(pane_of);
    let done = match pane {
        Some(pane) => match daemon.tmux.kill_pane(pane).await {
            Ok(answer) => format!("its pane was asked to close ({answer:?})"),
            Err(error) => format!("its pane was not closed: {error}"),
        },
        None => "its pane is not known".to_owned(),
    };
    drop(grant);
    Err(Refusal::new(
        ErrorCode::Failed,
        format!(
            "no reaper is connected, so nobody verified that the processes of {} are gone; {done}. \
             Start it (`poolctl up`): it goes on from here",
            session.name
        ),
    ))
}
