//! Starting an incarnation: the decision, once there is a slot for it; the launch under the session's lock;
//! the answer. The turn that decides the start claims the session, so that no other task settles it
//! meanwhile.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use pool::slots::{Starter, Wanted, begin_start};
use process::init::LIMIT_NOT_HELD;
use protocol::{ErrorCode, Incarnation, Lifecycle, Reason, Refusal, Reply, Session, SessionId};
use tmux::Answer;

use crate::decide::idempotency::ClientOperation;
use crate::decide::lock;
use crate::effect::cgroup;
use crate::effect::launch::launch;
use crate::effect::slot::{self, Requester, SlotDecision};
use crate::effect::tmux_server;
use crate::engine::{Daemon, Turn, TurnOnDrop, pane_of};
use crate::host::blocking_pool::Purpose;
use crate::host::files;
use crate::host::random::identity;
use crate::sense::{machine_capacity, programs};
use crate::verb::{clear, session_view};

/// Time that a repeated operation waits for the outcome of an earlier attempt.
pub(super) const OUTCOME_LIMIT: Duration = Duration::from_secs(30);

/// Bytes of disk without which nothing is started: for the records of a start, the files of its agent's hooks, and the
/// job of a usual environment.
const ROOM: usize = 64 << 10;

/// Launches a session whose creation was decided, and answers with the result. One that `is_numbered` gets
/// another name if tmux has its name.
pub(super) async fn launch_new(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    (session, is_numbered): (SessionId, bool),
) -> Reply {
    let _claim = start_claim(daemon, session);
    let grant = daemon.engine.lock_inside(session, "start").await?;
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let finish = move |turn: &mut Turn<'_>| conclude(turn, &context, &operation, session);
    let reply = launch(daemon, (session, is_numbered), finish);
    let reply = reply.await?;
    drop(grant);
    crate::crash::point("new-outcome");
    reply
}

/// Returns the claim on a session's start, which an earlier turn took by `begin_start`. No other task settles the
/// session until the claim is dropped.
pub(crate) fn start_claim(daemon: &Daemon, session: SessionId) -> TurnOnDrop {
    daemon.engine.on_drop(move |turn| {
        turn.volatile.scheduler.end_start(session);
        turn.wake();
    })
}

/// Returns the answer after a launch. Concludes the operation unless it is still unknown whether the session
/// runs.
pub(super) fn conclude(turn: &mut Turn<'_>, daemon: &Daemon, op: &ClientOperation, id: SessionId) -> Reply {
    let reply = outcome(turn, daemon, id);
    if turn.pool().session(id).is_none_or(|s| s.lifecycle != Lifecycle::Starting) {
        op.record_answer(turn, &reply);
    }
    reply
}

/// Returns the answer after a launch, from the session's state.
pub(super) fn outcome(turn: &mut Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let session = pool::session::get(turn.pool(), id)?;
    let detail = session.detail.clone().unwrap_or_default();
    let is_limit = detail.starts_with(LIMIT_NOT_HELD);
    let advice = if is_limit { ", and `--limits best-effort` starts it without" } else { "" };
    match session.lifecycle {
        Lifecycle::Failed => Err(Refusal::new(
            if is_limit { ErrorCode::Refused } else { error_code(session.reason) },
            format!("{id} failed to start: {detail}; {}{advice}", after_failure(session)),
        )),
        Lifecycle::Starting => {
            let is_placed = session.incarnation.as_ref().is_some_and(|run| run.pane.is_some());
            let why = if is_placed { "its program has not begun yet" } else { "tmux does not answer" };
            Err(Refusal::unavailable(format!(
                "{why}; {id} ({}) stays starting until it is known whether it runs",
                session.name
            )))
        }
        _ => session_view::reply(turn, daemon, id),
    }
}

/// Returns what becomes of a session that failed to start, with what to do.
fn after_failure(session: &Session) -> String {
    if session.policy.ephemeral && !session.policy.pinned {
        return "it is ephemeral, and removed by itself".to_owned();
    }
    let (name, again) = (&session.name, session.start_command());
    if session.worker.is_some() {
        return format!("`{again}` tries again");
    }
    format!("it keeps the name {name}: `{again}` tries again, `poolctl rm {name}` frees it")
}

/// Returns the error code of a failed launch.
fn error_code(reason: Option<Reason>) -> ErrorCode {
    match reason {
        Some(Reason::TmuxFailed) => ErrorCode::Unavailable,
        Some(Reason::NameTaken) => ErrorCode::Conflict,
        _ => ErrorCode::Failed,
    }
}

/// Answers with a session that runs, or is about to. Waits for a start or an end that is in progress; a
/// session that ends is started again.
pub(super) async fn ensure_running(daemon: &Arc<Daemon>, op: &ClientOperation, session: SessionId) -> Reply {
    let settled = move |turn: &mut Turn<'_>| {
        let Some(record) = turn.pool().session(session) else { return Some(Ok(false)) };
        if record.lifecycle == Lifecycle::Draining && record.takes_prompts() {
            return Some(Err(pool::session::still_drains(record)));
        }
        let in_progress = matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Draining)
            || pool::session::is_restarting(record);
        (!in_progress).then_some(Ok(record.lifecycle == Lifecycle::Live))
    };
    if !daemon.engine.wait_for(Some(OUTCOME_LIMIT), settled).await?? {
        return Box::pin(start_stopped(daemon, op, session, StartOptions::default())).await;
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    daemon.engine.turn(move |turn| conclude(turn, &context, &operation, session)).await?
}

/// Options of the start of an existing session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct StartOptions {
    /// True for the second part of a restart, whose first part has ended the session. Refused if the session was killed
    /// since.
    pub(crate) is_restart: bool,
    /// Begins a new conversation.
    pub(crate) fresh: bool,
    /// Maximum waiting time for a slot, in milliseconds; the configured one if absent.
    pub(crate) wait_ms: Option<u64>,
    /// Empties the log once there is a slot.
    pub(crate) clear: bool,
}

/// Starts an existing session, and answers with it. A session that runs already is the answer, too.
pub(super) async fn start_stopped(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    id: SessionId,
    options: StartOptions,
) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let conclude = move |turn: &mut Turn<'_>| conclude(turn, &context, &operation, id);
    match start_next(daemon, Requester::Operation(op.clone()), (id, options), conclude).await? {
        Some(reply) => reply,
        None if options.clear || options.fresh && !options.is_restart => {
            let why = "it was started by somebody else before it was reset; try again";
            Err(Refusal::conflict(why))
        }
        None => ensure_running(daemon, op, id).await,
    }
}

/// Checks before a start that it can succeed, so that what waits for it, or is to be ended for it, stays as it is.
/// `job` is the size of the job, if it may be above [`ROOM`].
///
/// # Errors
/// Failed, if the sessions' init is missing; refused, if the disk is full; unavailable, if none can be started in the
/// tmux server.
pub(super) async fn check(daemon: &Arc<Daemon>, job: usize) -> Result<(), Refusal> {
    if let Some(problem) = programs::init_problem(daemon).await {
        return Err(Refusal::failed(problem));
    }
    check_room(daemon, job).await?;
    tmux_server::check(daemon).await
}

/// Checks that [`ROOM`] and a job of this size can be written beside the jobs.
pub(super) async fn check_room(daemon: &Daemon, job: usize) -> Result<(), Refusal> {
    let run = daemon.paths.run.clone();
    let write = move || files::try_space(&run, ROOM + job);
    let written = daemon.blocking.with_timeout(Purpose::Launch, write).await;
    let place = daemon.paths.run.display();
    match written {
        Some(Ok(())) => Ok(()),
        Some(Err(error)) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
            Err(Refusal::refused(format!("the disk of {place} is full ({error}): make room there")))
        }
        Some(Err(error)) => Err(Refusal::failed(format!("cannot write to {place}: {error}"))),
        None => Err(Refusal::failed(format!("the file system of {place} does not answer"))),
    }
}

/// Decides the next incarnation of a session, once there is a slot for it, and launches it. Returns `None` if
/// the session runs already.
pub(crate) async fn start_next<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    requester: Requester,
    (id, options): (SessionId, StartOptions),
    conclude: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<Option<R>, Refusal> {
    // A session between two incarnations would stay there.
    if !options.is_restart {
        check(daemon, 0).await?;
    }
    let (context, under, begins) = (Arc::clone(daemon), lock::current(), requester.clone());
    let decide = move |turn: &mut Turn<'_>, ahead: usize| {
        let session = pool::session::get(turn.pool(), id)?.clone();
        if session.lifecycle.holds_slot() {
            return Ok(SlotDecision::Done(None));
        }
        // The next start of a session between two incarnations is already decided, by the request that ended the last
        // one.
        let between = pool::session::is_restarting(&session);
        if !between {
            lock::check_unlocked(turn, id, under)?;
            check_not_removed(&session)?;
        }
        if options.is_restart && !between {
            let why = format!("{} was killed before it started again", session.name);
            return Err(Refusal::conflict(why));
        }
        if !between && session.worker.is_none() {
            if pool::slots::free(turn.pool(), &context.settings()) <= ahead {
                return Ok(SlotDecision::Full);
            }
            if let Err(short) = machine_capacity::check(turn, &context) {
                return Ok(SlotDecision::Short(short));
            }
        }
        let starter = Starter::User { fresh: options.fresh };
        begin_start(turn, &context.settings(), &session, (starter, identity(&*context.world.random)?));
        if let Requester::Operation(op) = &begins {
            op.record_begun(turn, id);
        }
        Ok(SlotDecision::Done(Some(session)))
    };
    match slot::with_slot(daemon, requester.clone(), (options.wait_ms, Some(Wanted::Session(id))), decide)
        .await?
    {
        Some(before) => {
            // Nothing runs, and its start is claimed.
            let cleared = if options.clear { clear::empty_log(daemon, &before).await } else { Ok(()) };
            let launched = launch_next(daemon, before, conclude).await?;
            match (cleared, requester) {
                (Err(refusal), Requester::Operation(op)) => {
                    let answer = Err(refusal.clone());
                    daemon.engine.turn(move |turn| op.record_answer(turn, &answer)).await?;
                    Err(refusal)
                }
                (cleared, _) => cleared.map(|()| Some(launched)),
            }
        }
        None => Ok(None),
    }
}

/// A worker that was taken out of the configuration has no command any more.
fn check_not_removed(session: &Session) -> Result<(), Refusal> {
    match session.worker.as_deref().filter(|worker| worker.removed) {
        Some(worker) => {
            let name = &worker.name;
            let how = format!(
                "put [workers.{name}] back and `poolctl config reload`, or `poolctl worker rm {name}` removes it"
            );
            Err(Refusal::refused(format!("worker {name} is no longer in the configuration: {how}")))
        }
        None => Ok(()),
    }
}

/// Launches the next incarnation of a session, which is decided already, and moves attached clients to it
/// from the last one. `before` is the session as it was before the decision.
pub(crate) async fn launch_next<R: Send + 'static>(
    daemon: &Arc<Daemon>,
    before: Session,
    conclude: impl FnOnce(&mut Turn<'_>) -> R + Send + 'static,
) -> Result<R, Refusal> {
    let Session { id, incarnation: last, .. } = before;
    let _claim = start_claim(daemon, id);
    let grant = daemon.engine.lock_inside(id, "start").await?;
    let is_retired = match &last {
        Some(run) => release_name(daemon, run).await,
        None => false,
    };
    let result = launch(daemon, (id, false), conclude).await;
    if let Some(run) = last {
        if is_retired {
            replace(daemon, id, &run).await;
        }
        files::remove_run_files(&daemon.paths.run, run.tag);
        if let Some(group) = &run.cgroup {
            cgroup::remove(group.as_path());
        }
    }
    drop(grant);
    result
}

/// Renames the tmux session of the last incarnation, so that the next one can take its name. Returns false if its pane
/// is gone, or belongs to its user. If the name is taken nevertheless, the launch reports why.
async fn release_name(daemon: &Daemon, run: &Incarnation) -> bool {
    let (Some(pane), Some(session)) = (pane_of(run), run.session) else { return false };
    let renamed = daemon.tmux.rename(pane, session, &tmux::act::retired_name(run.tag)).await;
    tracing::debug!(?renamed, "the tmux session of the last incarnation gave up its name");
    !matches!(renamed, Ok(Answer::Gone | Answer::NotOurs))
}

/// Moves the clients attached to the last incarnation to the current one, and closes the last one's pane.
async fn replace(daemon: &Arc<Daemon>, id: SessionId, last: &Incarnation) {
    let Some(pane) = pane_of(last) else { return };
    let now = daemon.incarnation(id).await;
    let target = now.filter(|i| i.server == last.server).and_then(|i| i.session);
    if let (Some(target), Some(session)) = (target, last.session) {
        for client in daemon.tmux.clients(pane, session).await.unwrap_or_default() {
            if let Err(error) = daemon.tmux.switch_client(pane.server, &client.name, target).await {
                tracing::warn!(client = client.name, %error, "a client was not moved to the new incarnation");
            }
        }
    }
    match daemon.tmux.kill_pane(pane).await {
        Ok(answer) => tracing::debug!(?answer, "the pane of the last incarnation was closed"),
        Err(error) => tracing::debug!(%error, "the pane of the last incarnation was not closed"),
    }
}
