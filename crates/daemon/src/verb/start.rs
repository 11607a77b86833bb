//! Starts of sessions, as all verbs share them: the guard of a start, the launch, and the answer that it comes to.

use crate::host::identity::identity;
use pool::scheduler::{Starter, begin_start};
use std::sync::Arc;
use std::time::Duration;

use protocol::session::Reason;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply, Session, SessionId};

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::effect::cgroup;
use crate::effect::launch::launch;
use crate::effect::slot;
use crate::effect::slot::Decided;
use crate::engine::Turn;
use crate::engine::context::{Daemon, pane_of};
use crate::engine::handle::Handle;
use crate::host::files;
use crate::sense::capacity;
use crate::verb::shown;

/// How long a repeat waits for the outcome of what an earlier daemon had begun.
pub(crate) const OUTCOME_LIMIT: Duration = Duration::from_secs(30);

/// Launches what was decided and answers with what came of it.
pub(crate) async fn run(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
    let _starting = Starting::new(daemon, session);
    let grant = daemon.engine.lock_inside(session, "start").await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let reply = launch(daemon, session, move |turn| conclude(turn, &context, &operation, session));
    let reply = reply.await?;
    drop(grant);
    crate::crash::point("new-outcome");
    reply
}

/// That somebody is at a session's start: nobody else settles it meanwhile.
pub(crate) struct Starting {
    engine: Handle,
    session: SessionId,
}

impl Starting {
    /// For a session that was put among those that are started, in a turn before.
    pub(crate) fn new(daemon: &Daemon, session: SessionId) -> Self {
        Self { engine: daemon.engine.clone(), session }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let session = self.session;
        self.engine.post(move |turn| {
            turn.volatile.scheduler.end_start(session);
            turn.wake();
        });
    }
}

/// The answer that a session's state after a launch comes to; final once it is known whether it runs.
pub(crate) fn conclude(turn: &mut Turn<'_>, daemon: &Daemon, op: &Op, id: SessionId) -> Reply {
    let reply = outcome(turn, daemon, id);
    if turn.pool().session(id).is_none_or(|s| s.lifecycle != Lifecycle::Starting) {
        op.conclude(turn, &reply);
    }
    reply
}

/// The reply that a session's state after a launch comes to.
pub(crate) fn outcome(turn: &mut Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let Some(session) = turn.pool().session(id) else {
        return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
    };
    let detail = session.detail.clone().unwrap_or_default();
    match session.lifecycle {
        Lifecycle::Failed => Err(Refusal::new(
            failure(session.reason),
            format!(
                "{id} ({}) failed to start: {detail}; `poolctl restart` tries again, `poolctl rm` removes it",
                session.name
            ),
        )),
        Lifecycle::Starting => Err(Refusal::new(
            ErrorCode::Unavailable,
            format!(
                "tmux does not answer; {id} ({}) stays starting until it is known whether it runs",
                session.name
            ),
        )),
        _ => shown::reply(turn, daemon, id),
    }
}

pub(crate) fn failure(reason: Option<Reason>) -> ErrorCode {
    match reason {
        Some(Reason::TmuxFailed) => ErrorCode::Unavailable,
        Some(Reason::NameTaken) => ErrorCode::Conflict,
        _ => ErrorCode::Failed,
    }
}

/// Once it is known what becomes of it: as it is, or started again where it was just ending.
pub(crate) async fn existing(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
    let known = move |turn: &mut Turn<'_>| {
        let Some(record) = turn.pool().session(session) else { return Some(false) };
        let open =
            matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Draining) || pool::is_between(record);
        (!open).then_some(record.lifecycle == Lifecycle::Live)
    };
    if !daemon.engine.wait_for(Some(OUTCOME_LIMIT), known).await? {
        return Box::pin(start_again(daemon, op, session, Again::default())).await;
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    daemon.engine.turn(move |turn| conclude(turn, &context, &operation, session)).await?
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
pub(crate) async fn start_again(daemon: &Arc<Daemon>, op: &Op, id: SessionId, how: Again) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| conclude(turn, &context, &operation, id);
    match again(daemon, Some(op), id, how, conclude).await? {
        Some(reply) => reply,
        None => existing(daemon, op, id).await,
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
    let (context, operation, under) = (Arc::clone(daemon), op.cloned(), lock::current());
    let decide = move |turn: &mut Turn<'_>, ahead: usize| {
        let Some(session) = turn.pool().session(id).cloned() else {
            return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
        };
        if session.lifecycle.holds_slot() {
            return Ok(Decided::Done(None));
        }
        // What is between two runs was decided under whatever lock there was.
        if !pool::is_between(&session) {
            lock::free_for(turn, id, under)?;
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
            capacity::check(turn, &context)?;
        }
        let starter = Starter::User { fresh: how.fresh };
        begin_start(turn, &context.settings(), &session, (starter, identity()?));
        if let Some(op) = &operation {
            op.begun(turn, id);
        }
        Ok(Decided::Done(Some(session)))
    };
    match slot::with_slot(daemon, op, how.wait_ms, decide).await? {
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
            cgroup::remove(group.as_path());
        }
    }
    drop(grant);
    result
}

/// The last incarnation's tmux session gives its name up. Where that fails the launch says why.
pub(crate) async fn make_room(daemon: &Daemon, run: &protocol::Incarnation) {
    if let (Some(pane), Some(session)) = (pane_of(run), run.session) {
        match daemon.tmux.rename(pane, session, &tmux::act::retired_name(run.tag)).await {
            Ok(answer) => tracing::debug!(?answer, "the last incarnation was renamed"),
            Err(error) => tracing::debug!(%error, "the last incarnation was not renamed"),
        }
    }
}

/// Attached clients go over to the new incarnation; then the last one's pane goes.
pub(crate) async fn hand_over(daemon: &Arc<Daemon>, id: SessionId, last: &protocol::Incarnation) {
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
