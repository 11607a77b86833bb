//! The frame around every operation: executed at most once per operation id, in a task of its own.

use std::sync::{Arc, Weak};

use protocol::{ErrorCode, Lifecycle, OpId, Refusal, Reply, Request, Session, SessionId, Token};

use crate::decide::idempotency::{ClientOperation, OperationStatus, is_definite};
use crate::decide::lock;
use crate::engine::{Daemon, Turn, in_doubt};
use crate::verb::start::{OUTCOME_LIMIT, outcome};

/// The answer to a repeat of an operation that an earlier daemon began and whose outcome the session's record does not
/// show.
pub(super) type InterruptedAnswer = (ErrorCode, &'static str);

/// A request that changes something, and is not begun yet.
pub(super) struct Operation<'a> {
    daemon: &'a Arc<Daemon>,
    /// An error if the request has no usable operation id.
    op: Result<ClientOperation, Refusal>,
    /// The user's lock under which it is executed.
    lock: Option<Token>,
    if_interrupted: OnInterruption,
}

/// Treatment of a repeat of an operation that an earlier daemon began.
pub(super) enum OnInterruption {
    /// The outcome, as the session's record shows it.
    Outcome,
    /// This answer.
    Answer(InterruptedAnswer),
    /// The work is done again on the same session, which changes nothing if it was done before.
    Repeat,
}

impl<'a> Operation<'a> {
    pub(super) fn new(
        daemon: &'a Arc<Daemon>,
        (id, lock): (Option<OpId>, Option<Token>),
        request: &Request,
        if_interrupted: OnInterruption,
    ) -> Self {
        Self { daemon, op: ClientOperation::new(id, request), lock, if_interrupted }
    }

    /// Executes `work` at most once per operation id, however often the request is repeated. In its own task,
    /// so that a client that disconnects does not stop it half-way.
    pub(super) async fn run<F: Future<Output = Reply> + Send + 'static>(
        self,
        work: impl FnOnce(Arc<Daemon>, ClientOperation) -> F + Send + 'static,
    ) -> Reply {
        let Self { daemon, op, lock, if_interrupted } = self;
        let awaiter = Awaiter::new(daemon);
        let op = op?.with_user_lock(lock).awaited_by(awaiter.waits());
        let (daemon, world) = (Arc::clone(daemon), daemon.world.clone());
        let once = async move { once(&daemon, op, if_interrupted, work).await };
        world.detach("operation", lock::with_user_lock(lock, once)).await.ok_or_else(in_doubt)?
    }
}

/// A client that waits for the answer. Dropped with its connection, it gives up its place in every wait
/// queue.
pub(super) struct Awaiter {
    daemon: Arc<Daemon>,
    alive: Option<Arc<()>>,
}

impl Awaiter {
    pub(super) fn new(daemon: &Arc<Daemon>) -> Self {
        Self { daemon: Arc::clone(daemon), alive: Some(Arc::default()) }
    }

    /// Returns what exists as long as the client waits.
    pub(super) fn waits(&self) -> Weak<()> {
        self.alive.as_ref().map(Arc::downgrade).unwrap_or_default()
    }
}

impl Drop for Awaiter {
    fn drop(&mut self) {
        self.alive = None;
        self.daemon.engine.post(|turn| {
            if !turn.volatile.scheduler.waiting.is_empty() {
                turn.wake();
            }
        });
    }
}

/// Executes an operation unless it is known already: then it answers with its result.
async fn once<F: Future<Output = Reply>>(
    daemon: &Arc<Daemon>,
    op: ClientOperation,
    if_interrupted: OnInterruption,
    work: impl FnOnce(Arc<Daemon>, ClientOperation) -> F,
) -> Reply {
    let begin = op.clone();
    let is_final = matches!(if_interrupted, OnInterruption::Answer(_));
    let reply = match daemon.engine.turn(move |turn| begin.begin(turn)).await? {
        OperationStatus::Answered(reply) => return reply,
        OperationStatus::Running(answer) => return answer.await.map_err(|_| in_doubt())?,
        OperationStatus::Interrupted(session) => match if_interrupted {
            OnInterruption::Answer((code, why)) => Err(Refusal::new(code, why)),
            OnInterruption::Outcome => interrupted_outcome(daemon, op.clone(), session).await,
            OnInterruption::Repeat => work(Arc::clone(daemon), op.clone().begun_for(session)).await,
        },
        OperationStatus::Fresh => work(Arc::clone(daemon), op.clone()).await,
    };
    let answer = reply.clone();
    daemon.engine.turn(move |turn| op.finish(turn, &answer, is_final)).await?;
    reply
}

/// Waits until an interrupted operation's session has settled, and answers with it. Success and definite refusals are
/// recorded: whatever happens to the session later, a repeat gets the same answer.
async fn interrupted_outcome(daemon: &Arc<Daemon>, op: ClientOperation, session: SessionId) -> Reply {
    let context = Arc::clone(daemon);
    let settled = move |turn: &mut Turn<'_>| {
        // A session without a record was given up, which settles the operation.
        let is_settled = turn.pool().session(session).is_none_or(|record| {
            !pool::session::is_restarting(record)
                && !matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Draining)
        });
        let reply = is_settled.then(|| settled_outcome(turn, &context, session))?;
        if reply.as_ref().err().is_none_or(is_definite) {
            op.record_answer(turn, &reply);
        }
        Some(reply)
    };
    daemon.engine.wait_for(Some(OUTCOME_LIMIT), settled).await?
}

/// Returns the outcome of a start or a change that an earlier daemon began. A session that was lost before its pane was
/// seen counts as not started: its program may never have run.
fn settled_outcome(turn: &mut Turn<'_>, daemon: &Daemon, id: SessionId) -> Reply {
    let is_unseen = |session: &Session| {
        session.lifecycle == Lifecycle::Lost
            && session.incarnation.as_ref().is_some_and(|run| run.pane.is_none())
    };
    match turn.pool().session(id).filter(|session| is_unseen(session)) {
        Some(session) => {
            let why = format!(
                "{id} ({0}) was lost before it was known to run; `poolctl restore {0}` starts it",
                session.name
            );
            Err(Refusal::failed(why))
        }
        None => outcome(turn, daemon, id),
    }
}
