//! `kill` and `restart`: the reaper ends what `poold` names, and both answer when that is verified.

use std::sync::Arc;
use std::time::Duration;

use protocol::reap::Outcome;
use protocol::request::{Kill, Restart};
use protocol::session::Reason;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply, Session, SessionId, SessionRef, Tag};

use super::{create, shown};
use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::launch::{self, launch};
use crate::op::Op;

/// How long a reaper may take to appear before the daemon does without.
const REAPER_LIMIT: Duration = Duration::from_secs(1);
/// How long an end may take beyond its grace: the reaper's verification and the waiting line.
const END_SLACK: Duration = Duration::from_secs(15);

pub(super) async fn kill(daemon: &Arc<Daemon>, op: &Op, asked: Kill) -> Reply {
    let session =
        doom(daemon, asked.session, asked.grace_ms, |session, _, _| Ok(pool::admit::kill(session)), None)
            .await?;
    ended(daemon, &session).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

pub(super) async fn restart(daemon: &Arc<Daemon>, op: &Op, asked: Restart) -> Reply {
    let admit = |session: &Session, pool: &pool::Pool, settings: &pool::Settings| {
        pool::admit::restart(pool, settings, session)
    };
    let session = doom(daemon, asked.session, asked.grace_ms, admit, Some(op)).await?;
    ended(daemon, &session).await?;
    start_again(daemon, op, session.id).await
}

/// Commits that an incarnation is to end, and answers with the session as it is then.
async fn doom(
    daemon: &Arc<Daemon>,
    wanted: SessionRef,
    grace_ms: Option<u64>,
    admit: impl FnOnce(&Session, &pool::Pool, &pool::Settings) -> Result<Vec<protocol::Event>, Refusal>
    + Send
    + 'static,
    begun: Option<&Op>,
) -> Result<Session, Refusal> {
    let (settings, begun) = (daemon.settings(), begun.cloned());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?;
        let (id, tag) = (session.id, session.incarnation.as_ref().map(|i| i.tag));
        let events = admit(session, turn.pool(), &settings)?;
        if let Some(grace) = grace_ms {
            turn.rest.view.graces.insert(id, grace);
        }
        if let Some(tag) = tag {
            turn.rest.view.verdicts.remove(&tag);
        }
        if let Some(op) = begun {
            op.begun(turn, id);
        }
        turn.emit_all(events);
        turn.pool().session(id).cloned().ok_or_else(|| pool::admit::not_found(turn.pool(), &wanted.0))
    };
    daemon.engine.turn(decide).await?
}

/// Waits until the incarnation is verified gone, or nobody can say so.
pub(super) async fn ended(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let Some(run) = session.incarnation.clone().filter(|_| session.lifecycle.holds_slot()) else {
        return Ok(());
    };
    let (id, tag) = (session.id, run.tag);
    let reaper = move |turn: &mut Turn<'_>| {
        (over(turn, id, tag).is_some() || !turn.rest.view.reapers.is_empty()).then_some(())
    };
    match daemon.engine.wait_for(Some(REAPER_LIMIT), reaper).await {
        Ok(()) => {}
        Err(refusal) if refusal.code == ErrorCode::Timeout => return without_reaper(daemon, session).await,
        Err(refusal) => return Err(refusal),
    }
    let grace = daemon.engine.turn(move |turn| turn.rest.view.graces.get(&id).copied()).await?;
    let limit = Duration::from_millis(grace.unwrap_or(daemon.settings().grace_ms)) + END_SLACK;
    let verdict = daemon.engine.wait_for(Some(limit), move |turn| over(turn, id, tag)).await;
    daemon.engine.post(move |turn| {
        turn.rest.view.graces.remove(&id);
    });
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
fn over(turn: &Turn<'_>, id: SessionId, tag: Tag) -> Option<Result<(), Refusal>> {
    let current = turn
        .pool()
        .session(id)
        .filter(|s| s.lifecycle.holds_slot() && s.incarnation.as_ref().is_some_and(|i| i.tag == tag));
    if current.is_none() {
        return Some(Ok(()));
    }
    let failed = |what: String| Some(Err(Refusal::new(ErrorCode::Failed, what)));
    match turn.rest.view.verdicts.get(&tag)? {
        Outcome::Gone { .. } => None,
        Outcome::Survivors { left } => failed(format!("not all of it is gone; left: {}", left.join(", "))),
        Outcome::Untouched { why } => {
            failed(format!("nothing was done: {why}; it stays draining and is tried again"))
        }
    }
}

/// Nobody is there to verify: removes the pane, which hangs up its programs, and says so.
async fn without_reaper(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    let grant = daemon.engine.lock(session.id, "kill").await?;
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

/// Decides on the next incarnation of a session that does not run, launches it, and moves whoever
/// is attached to it over from the last one's remains.
pub(super) async fn start_again(daemon: &Arc<Daemon>, op: &Op, id: SessionId) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = create::outcome(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    again(daemon, id, conclude).await?
}

async fn again<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    id: SessionId,
    conclude: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<R, Refusal> {
    let grant = daemon.engine.lock(id, "restart").await?;
    let decide = move |turn: &mut Turn<'_>| {
        let session = turn.pool().session(id).filter(|s| !s.lifecycle.holds_slot()).cloned();
        let Some(session) = session else { return Ok(None) };
        launch::renew(turn, id).map_err(|e| Refusal::new(ErrorCode::Failed, e.to_string()))?;
        Ok(Some(session))
    };
    let before: Option<Session> = daemon.engine.turn(decide).await??;
    let remains = before.as_ref().and_then(|s| s.incarnation.clone());
    if let Some(run) = &remains {
        make_room(daemon, run).await;
    }
    let result = launch(daemon, id, conclude).await;
    if let Some(run) = remains {
        hand_over(daemon, id, &run).await;
    }
    drop(grant);
    result
}

/// The last incarnation's tmux session gives its name up. Where that fails the launch says why.
async fn make_room(daemon: &Daemon, run: &protocol::Incarnation) {
    if let (Some(pane), Some(session)) = (pane_of(run), run.session) {
        match daemon.tmux.rename(pane, session, &tmux::act::stale_name(run.tag)).await {
            Ok(answer) => tracing::debug!(?answer, "the last incarnation was renamed"),
            Err(error) => tracing::debug!(%error, "the last incarnation was not renamed"),
        }
    }
}

/// Attached clients go over to the new incarnation; then the last one's pane goes.
async fn hand_over(daemon: &Arc<Daemon>, id: SessionId, last: &protocol::Incarnation) {
    let Some(pane) = pane_of(last) else { return };
    let now = daemon.engine.turn(move |turn| turn.pool().session(id)?.incarnation.clone()).await;
    let target = now.ok().flatten().filter(|i| i.server == last.server).and_then(|i| i.session);
    if let (Some(target), Some(session)) = (target, last.session) {
        for client in daemon.tmux.clients(pane.server, session).await.unwrap_or_default() {
            if let Err(error) = daemon.tmux.switch_client(pane.server, &client.name, target).await {
                tracing::warn!(client = client.name, %error, "was not switched over");
            }
        }
    }
    match daemon.tmux.kill_pane(pane).await {
        Ok(answer) => tracing::debug!(?answer, "the last pane"),
        Err(error) => tracing::debug!(%error, "the last pane"),
    }
}

/// After a start of the daemon: a restart that was under way goes on.
pub(crate) async fn resume(daemon: Arc<Daemon>, session: Session) -> Result<(), Refusal> {
    ended(&daemon, &session).await?;
    let id = session.id;
    let still = move |turn: &mut Turn<'_>| {
        turn.pool()
            .session(id)
            .is_some_and(|s| s.lifecycle == Lifecycle::Stopped && s.reason == Some(Reason::Restarted))
    };
    if daemon.engine.turn(still).await? {
        again(&daemon, id, |_| ()).await?;
    }
    Ok(())
}
