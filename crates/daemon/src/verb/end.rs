//! `kill` and `restart`: the reaper ends what `poold` names, and both answer when that is verified.

use std::sync::Arc;
use std::time::Duration;

use protocol::reap::Outcome;
use protocol::request::{Kill, Restart};
use protocol::{ErrorCode, Refusal, Reply, Session, SessionId, SessionRef, Tag};
use tokio::time::timeout;

use super::create::{self, Starting};
use super::shown;
use crate::context::{Daemon, pane_of};
use crate::engine::Turn;
use crate::files;
use crate::launch::launch;
use crate::op::Op;
use crate::slots::{self, By, Decided};
use crate::{cgroups, locking, room};

/// How long a reaper may take to appear before the daemon does without.
const REAPER_LIMIT: Duration = Duration::from_secs(1);
/// And after the daemon's own start, which it finds out by trying again: its longest pause between two tries, and some.
const REAPER_RETURN: Duration = Duration::from_secs(5);
/// How long an end may take beyond its grace: the reaper's verification and the waiting line.
const END_SLACK: Duration = Duration::from_secs(15);
/// How long files of hooks may hold up a restart.
const HOOKS_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn kill(daemon: &Arc<Daemon>, op: &Op, asked: Kill) -> Reply {
    let admit: Admit = |session| Ok(pool::admit::kill(session));
    let session = doom(daemon, op, (asked.session, asked.grace_ms), admit).await?;
    ended(daemon, &session).await?;
    let (context, operation, id) = (Arc::clone(daemon), op.clone(), session.id);
    let conclude = move |turn: &mut Turn<'_>| {
        let reply = shown::reply(turn, &context, id);
        operation.conclude(turn, &reply);
        reply
    };
    daemon.engine.turn(conclude).await?
}

/// Where it fails half-way the session is still to start again, and is once its last run is over.
pub(super) async fn restart(daemon: &Arc<Daemon>, op: &Op, asked: Restart) -> Reply {
    let admit: Admit = |session| Ok(pool::admit::restart(session));
    let session = doom(daemon, op, (asked.session, asked.grace_ms), admit).await?;
    let ran = session.lifecycle.holds_slot();
    let claim = move |turn: &mut Turn<'_>| turn.rest.view.starting.insert(session.id);
    let starting = daemon.engine.turn(claim).await?.then(|| Starting::new(daemon, session.id));
    ended(daemon, &session).await?;
    // Of the next incarnation what its hooks left says nothing.
    timeout(HOOKS_LIMIT, crate::hooks::read_of(daemon, &[session.id])).await.ok();
    let again = Again { ended: ran, fresh: asked.fresh, wait_ms: asked.wait_slot_ms };
    let reply = start_again(daemon, op, session.id, again).await;
    drop(starting);
    reply
}

type Admit = fn(&Session) -> Result<Vec<protocol::Event>, Refusal>;

/// Commits that an incarnation is to end, and answers with the session as it is then.
async fn doom(
    daemon: &Arc<Daemon>,
    op: &Op,
    (wanted, grace_ms): (SessionRef, Option<u64>),
    admit: Admit,
) -> Result<Session, Refusal> {
    let (op, under) = (op.clone(), locking::current());
    let decide = move |turn: &mut Turn<'_>| {
        let session = pool::admit::resolve(turn.pool(), &wanted)?.clone();
        locking::free_for(turn, session.id, under)?;
        let events = admit(&session)?;
        if let Some(tag) =
            session.incarnation.as_ref().filter(|_| session.lifecycle.holds_slot()).map(|i| i.tag)
        {
            turn.rest.view.verdicts.remove(&tag);
            if let Some(grace) = grace_ms {
                turn.rest.view.graces.insert(tag, grace);
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
pub(super) async fn ended(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
    ended_unless(daemon, session, |_| false).await
}

/// The same, or until it is so with the session.
pub(super) async fn ended_unless(
    daemon: &Arc<Daemon>,
    session: &Session,
    so: fn(&Session) -> bool,
) -> Result<(), Refusal> {
    let Some(run) = session.incarnation.clone().filter(|_| session.lifecycle.holds_slot()) else {
        return Ok(());
    };
    let (id, tag) = (session.id, run.tag);
    let reaper = move |turn: &mut Turn<'_>| {
        (over(turn, id, tag, so).is_some() || !turn.rest.view.reapers.is_empty()).then_some(())
    };
    let limit = REAPER_LIMIT.max(REAPER_RETURN.saturating_sub(daemon.started.elapsed()));
    match daemon.engine.wait_for(Some(limit), reaper).await {
        Ok(()) => {}
        Err(refusal) if refusal.code == ErrorCode::Timeout => return without_reaper(daemon, session).await,
        Err(refusal) => return Err(refusal),
    }
    let grace = daemon.engine.turn(move |turn| turn.rest.view.graces.get(&tag).copied()).await?;
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
fn over(turn: &Turn<'_>, id: SessionId, tag: Tag, so: fn(&Session) -> bool) -> Option<Result<(), Refusal>> {
    let current = turn
        .pool()
        .session(id)
        .filter(|s| s.lifecycle.holds_slot() && s.incarnation.as_ref().is_some_and(|i| i.tag == tag));
    if current.is_none_or(so) {
        return Some(Ok(()));
    }
    let failed = |what: String| Some(Err(Refusal::new(ErrorCode::Failed, what)));
    match turn.rest.view.verdicts.get(&tag)? {
        Outcome::Gone { .. } | Outcome::Spared { .. } => None,
        Outcome::Survivors { left } => failed(format!("not all of it is gone; left: {}", left.join(", "))),
        Outcome::Refused { why } => failed(format!("nothing was done: {why}")),
        Outcome::Untouched { why } => {
            failed(format!("nothing was done: {why}; it stays draining and is tried again"))
        }
    }
}

/// Nobody is there to verify: removes the pane, which hangs up its programs, and says so.
async fn without_reaper(daemon: &Arc<Daemon>, session: &Session) -> Result<(), Refusal> {
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

/// How a session is started again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Again {
    /// It was ended in order to start again.
    pub(crate) ended: bool,
    /// With a new conversation.
    pub(crate) fresh: bool,
    /// How long to wait for a slot.
    pub(crate) wait_ms: Option<u64>,
}

/// Starts a session that does not run.
pub(super) async fn start_again(daemon: &Arc<Daemon>, op: &Op, id: SessionId, how: Again) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| create::conclude(turn, &context, &operation, id);
    match again(daemon, Some(op), id, how, conclude).await? {
        Some(reply) => reply,
        None => create::existing(daemon, op, id).await,
    }
}

/// Decides on the next incarnation, once there is a slot for it, and brings it up. `None`: it runs already.
pub(crate) async fn again<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    op: Option<&Op>,
    id: SessionId,
    how: Again,
    conclude: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<Option<R>, Refusal> {
    let (context, operation, under) = (Arc::clone(daemon), op.cloned(), locking::current());
    let decide = move |turn: &mut Turn<'_>, ahead: usize| {
        let Some(session) = turn.pool().session(id).cloned() else {
            return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
        };
        if session.lifecycle.holds_slot() {
            return Ok(Decided::Done(None));
        }
        // What is between two runs was decided under whatever lock there was.
        if !pool::is_between(&session) {
            locking::free_for(turn, id, under)?;
        }
        let between = pool::is_between(&session);
        if how.ended && !between {
            let why = format!("{} was killed before it started again", session.name);
            return Err(Refusal::new(ErrorCode::Conflict, why));
        }
        if !between {
            if pool::slots::free(turn.pool(), &context.settings()) <= ahead {
                return Ok(Decided::Full);
            }
            room::check(turn, &context)?;
        }
        slots::begin(turn, &context, &session, By::Name { fresh: how.fresh })?;
        if let Some(op) = &operation {
            op.begun(turn, id);
        }
        Ok(Decided::Done(Some(session)))
    };
    match slots::with_slot(daemon, op, how.wait_ms, decide).await? {
        Some(before) => bring_up(daemon, before, conclude).await.map(Some),
        None => Ok(None),
    }
}

/// Launches the next incarnation of a session, which was decided, and moves whoever is attached over from the
/// last one's remains. `before` is the session as it was before that.
pub(crate) async fn bring_up<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    before: Session,
    conclude: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<R, Refusal> {
    let (id, last) = (before.id, before.incarnation);
    let _starting = Starting::new(daemon, id);
    let grant = daemon.engine.lock_inside(id, "start").await?;
    if let Some(run) = &last {
        make_room(daemon, run).await;
    }
    let result = launch(daemon, id, conclude).await;
    if let Some(run) = last {
        hand_over(daemon, id, &run).await;
        files::forget(&daemon.paths.run, run.tag);
        if let Some(group) = &run.cgroup {
            cgroups::remove(group.as_path());
        }
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
    let now = daemon.incarnation(id).await;
    let target = now.filter(|i| i.server == last.server).and_then(|i| i.session);
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
