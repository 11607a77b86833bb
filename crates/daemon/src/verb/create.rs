//! `new`: the intent on disk, then the launch under the session's lock, then the answer.

use std::sync::Arc;
use std::time::Duration;

use pool::admit::{Admitted, Launch, Made};
use protocol::request::New;
use protocol::session::Reason;
use protocol::{ErrorCode, Lifecycle, Refusal, Reply, SessionId};

use super::{end, shown};
use crate::clock;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::files::{self, Fence};
use crate::launch::{self, launch};
use crate::op::Op;

/// How long a repeat waits for the outcome of what an earlier daemon had begun.
pub(super) const OUTCOME_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn new(daemon: &Arc<Daemon>, op: &Op, asked: New) -> Reply {
    check_directory(&asked)?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let admitted = daemon.engine.turn(move |turn| admit(turn, &context, &operation, &asked)).await??;
    crate::crash::point("new-intent");
    match admitted {
        Admitted::Create(Made { session, .. }) => run(daemon, op, session).await,
        Admitted::Start(session) => end::start_again(daemon, op, session).await,
        Admitted::Existing(session) => existing(daemon, op, session).await,
    }
}

/// Before anything is written: a directory that is not there is a mistake in the request.
fn check_directory(asked: &New) -> Result<(), Refusal> {
    match &asked.cwd {
        Some(cwd) if !cwd.as_path().is_dir() => {
            Err(Refusal::new(ErrorCode::Usage, format!("{} is not a directory", cwd.as_path().display())))
        }
        _ => Ok(()),
    }
}

fn admit(turn: &mut Turn<'_>, daemon: &Daemon, op: &Op, asked: &New) -> Result<Admitted, Refusal> {
    let now = turn.now();
    let tag = clock::tag().map_err(|e| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}")))?;
    let stamp = clock::stamp(now);
    let launch = Launch { tag, now, stamp: &stamp };
    let mut admitted = pool::admit::new(turn.pool(), &daemon.settings(), asked, &launch)?;
    if let Admitted::Create(made) = &mut admitted {
        turn.emit_all(made.events.drain(..));
        op.begun(turn, made.session);
        turn.rest.view.busy.insert(made.session);
    }
    Ok(admitted)
}

/// Launches what was decided and answers with what came of it.
pub(super) async fn run(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
    let grant = daemon.engine.lock(session, "start").await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let reply = launch(daemon, session, move |turn| {
        turn.rest.view.busy.remove(&session);
        let reply = outcome(turn, &context, session);
        operation.conclude(turn, &reply);
        reply
    });
    let reply = reply.await?;
    drop(grant);
    crate::crash::point("new-outcome");
    reply
}

/// The reply that a session's state after a launch comes to.
pub(super) fn outcome(turn: &mut Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let Some(session) = turn.pool().session(id) else {
        return Err(pool::admit::not_found(turn.pool(), &id.to_string()));
    };
    let detail = session.detail.clone().unwrap_or_default();
    match session.lifecycle {
        Lifecycle::Failed => Err(Refusal::new(
            if session.reason == Some(Reason::TmuxFailed) {
                ErrorCode::Unavailable
            } else {
                ErrorCode::Failed
            },
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

async fn existing(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let look = move |turn: &mut Turn<'_>| {
        let starting = turn.pool().session(session).is_some_and(|s| s.lifecycle == Lifecycle::Starting);
        (!starting).then(|| {
            let reply = outcome(turn, &context, session);
            operation.conclude(turn, &reply);
            reply
        })
    };
    daemon.engine.wait_for(Some(OUTCOME_LIMIT), look).await?
}

/// After a start of the daemon: finds out what became of a creation that was under way.
pub(crate) async fn resume(daemon: Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let grant = daemon.engine.lock(session, "start").await?;
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    let Some(run) = record.filter(|s| s.lifecycle == Lifecycle::Starting).and_then(|s| s.incarnation) else {
        return Ok(());
    };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => {
            // It never ran and never will; what was decided still holds, with a new tag.
            let renewed = daemon.engine.turn(move |turn| launch::renew(turn, session)).await?;
            renewed.map_err(|e| Refusal::new(ErrorCode::Failed, e.to_string()))?;
            launch(&daemon, session, |_| ()).await?;
        }
        Ok(Fence::Claimed) => found_again(&daemon, session, &run).await?,
        Err(error) => tracing::error!(%session, %error, "its job file cannot be looked at"),
    }
    drop(grant);
    Ok(())
}

/// Its init claimed the job: it is, or was, in tmux. Until it is seen the session stays `starting`.
async fn found_again(
    daemon: &Arc<Daemon>,
    session: SessionId,
    run: &protocol::Incarnation,
) -> Result<(), Refusal> {
    let placed = launch::find(daemon, run, Duration::from_secs(2)).await;
    let launched = launch::await_start(daemon, placed.clone().unwrap_or_else(|| run.clone())).await;
    let (tag, dir) = (run.tag, daemon.paths.run.clone());
    let known = placed.is_some()
        || matches!(launched, launch::Launched::Failed { .. } | launch::Launched::Ran { exit: Some(_), .. });
    if known {
        daemon.engine.turn(move |turn| launch::settle(turn, &dir, session, (tag, launched))).await?;
    }
    Ok(())
}
