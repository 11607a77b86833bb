//! `new`: the intent on disk, then the launch under the session's lock, then the answer.

use std::sync::Arc;
use std::time::Duration;

use pool::admit::{Admitted, Body, Launch, Made};
use protocol::message::PROMPT;
use protocol::request::{New, Send};
use protocol::session::Reason;
use protocol::{
    ErrorCode, Event, Incarnation, Lifecycle, Message, MessageId, Refusal, Reply, Seq, Session, SessionId,
    SessionRef,
};

use super::end::Again;
use super::{adopt, end, queue, shown};
use crate::clock;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::files::{self, Fence};
use crate::handle::Handle;
use crate::launch::{self, Launched, launch};
use crate::op::Op;
use crate::slots::{self, By, Decided};
use crate::slow::{self, Purpose};
use crate::{cgroups, locking, room};

/// How long a repeat waits for the outcome of what an earlier daemon had begun.
pub(super) const OUTCOME_LIMIT: Duration = Duration::from_secs(30);

pub(super) async fn new(daemon: &Arc<Daemon>, op: &Op, asked: New) -> Reply {
    check_directory(&asked).await?;
    cgroups::look(daemon).await;
    let first = first_message(&asked)?;
    let (context, operation, wait_ms) = (Arc::clone(daemon), op.clone(), asked.wait_slot_ms);
    let decide = move |turn: &mut Turn<'_>, ahead: usize| {
        admit(turn, &context, &operation, (&asked, first.as_ref(), ahead))
    };
    let admitted = slots::with_slot(daemon, Some(op), wait_ms, decide).await?;
    crate::crash::point("new-intent");
    match admitted {
        Way::Create(session) => run(daemon, op, session).await,
        Way::Start(before) => {
            let (context, operation, id) = (Arc::clone(daemon), op.clone(), before.id);
            let conclude = move |turn: &mut Turn<'_>| conclude(turn, &context, &operation, id);
            end::bring_up(daemon, *before, conclude).await?
        }
        Way::Existing(session) => existing(daemon, op, session).await,
    }
}

/// What an admitted request comes to, its slot taken.
enum Way {
    /// A new session.
    Create(SessionId),
    /// One that there was, as it was before its next start.
    Start(Box<Session>),
    /// One that runs, or is about to.
    Existing(SessionId),
}

/// Before anything is written: a directory that is not there is a mistake in the request.
async fn check_directory(asked: &New) -> Result<(), Refusal> {
    let Some(cwd) = asked.cwd.clone().or_else(|| asked.caller_cwd.clone()) else { return Ok(()) };
    let path = cwd.as_path().to_owned();
    match slow::limited(Purpose::Places, move || path.is_dir()).await {
        Some(true) => Ok(()),
        Some(false) => {
            Err(Refusal::new(ErrorCode::Usage, format!("{} is not a directory", cwd.as_path().display())))
        }
        None => Err(Refusal::new(ErrorCode::Failed, format!("{} does not answer", cwd.as_path().display()))),
    }
}

/// The text of `--prompt`, as a message for the session to be.
fn first_message(asked: &New) -> Result<Option<(Send, Body)>, Refusal> {
    let Some(body) = asked.prompt.clone() else { return Ok(None) };
    let mut send = Send {
        // Whose it is is known when it is queued.
        session: SessionRef(String::new()),
        body,
        kind: PROMPT.to_owned(),
        key: None,
        origin: "new".to_owned(),
        ttl_ms: None,
        enter: true,
        raw: false,
        priority: 0,
        cause: None,
        wake: false,
    };
    let body = queue::body(&mut send)?;
    Ok(Some((send, body)))
}

fn admit(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: &Op,
    (asked, first, ahead): (&New, Option<&(Send, Body)>, usize),
) -> Result<Decided<Way>, Refusal> {
    let now = turn.now();
    let random = |e| Refusal::new(ErrorCode::Failed, format!("no random numbers: {e}"));
    let (tag, conversation) = (clock::tag().map_err(random)?, clock::uuid().map_err(random)?);
    let stamp = clock::stamp(now);
    let launch = Launch { tag, now, stamp: &stamp, conversation: &conversation, ahead };
    let mut admitted = pool::admit::new(turn.pool(), &daemon.settings(), asked, &launch)?;
    match &mut admitted {
        Admitted::Full => return Ok(Decided::Full),
        Admitted::Create(made) => {
            room::check(turn, daemon)?;
            // All of it, or nothing.
            let message = match (first, made.events.first()) {
                (Some((send, body)), Some(Event::SessionCreated(session))) => {
                    let seq = Seq(turn.next_seq().0 + 1);
                    queue::first(turn, daemon, session, (send, body), seq)?
                }
                _ => None,
            };
            turn.emit_all(made.events.drain(..));
            op.begun(turn, made.session);
            turn.rest.view.starting.insert(made.session);
            message.into_iter().for_each(|message| queue::queue_first(turn, message));
        }
        Admitted::Start(id) => return start(turn, daemon, op, (*id, first, ahead)),
        // It was there before: its prompt is a message like any other.
        Admitted::Existing(id) => {
            if let (Some((send, body)), Some(session)) = (first, turn.pool().session(*id).cloned()) {
                let seq = turn.next_seq();
                let message = queue::first(turn, daemon, &session, (send, body), seq)?;
                message.into_iter().for_each(|message| queue::queue_first(turn, message));
                op.begun(turn, *id);
            }
        }
    }
    Ok(Decided::Done(match admitted {
        Admitted::Create(Made { session, .. }) => Way::Create(session),
        Admitted::Existing(id) | Admitted::Start(id) => Way::Existing(id),
        Admitted::Full => return Ok(Decided::Full),
    }))
}

/// A session that there was, and its prompt with its next start: both or neither.
fn start(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: &Op,
    (id, first, ahead): (SessionId, Option<&(Send, Body)>, usize),
) -> Result<Decided<Way>, Refusal> {
    let Some(before) = turn.pool().session(id).cloned() else { return Ok(Decided::Done(Way::Existing(id))) };
    if !pool::is_between(&before) {
        locking::free_for(turn, id, op.under)?;
        if pool::slots::free(turn.pool(), &daemon.settings()) <= ahead {
            return Ok(Decided::Full);
        }
        room::check(turn, daemon)?;
    }
    let message = match first {
        Some((send, body)) => {
            let seq = turn.next_seq();
            queue::first(turn, daemon, &before, (send, body), seq)?
        }
        None => None,
    };
    slots::begin(turn, daemon, &before, By::Name { fresh: false })?;
    op.begun(turn, id);
    if let Some((message, body)) = message {
        // Its number is its place in the journal.
        let id = MessageId(turn.next_seq().0);
        queue::queue_first(turn, (Message { id, ..message }, body));
    }
    Ok(Decided::Done(Way::Start(Box::new(before))))
}

/// Launches what was decided and answers with what came of it.
pub(super) async fn run(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
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
            turn.rest.view.starting.remove(&session);
            turn.stir();
        });
    }
}

/// The answer that a session's state after a launch comes to; final once it is known whether it runs.
pub(super) fn conclude(turn: &mut Turn<'_>, daemon: &Daemon, op: &Op, id: SessionId) -> Reply {
    let reply = outcome(turn, daemon, id);
    if turn.pool().session(id).is_none_or(|s| s.lifecycle != Lifecycle::Starting) {
        op.conclude(turn, &reply);
    }
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

fn failure(reason: Option<Reason>) -> ErrorCode {
    match reason {
        Some(Reason::TmuxFailed) => ErrorCode::Unavailable,
        Some(Reason::NameTaken) => ErrorCode::Conflict,
        _ => ErrorCode::Failed,
    }
}

/// Once it is known what becomes of it: as it is, or started again where it was just ending.
pub(super) async fn existing(daemon: &Arc<Daemon>, op: &Op, session: SessionId) -> Reply {
    let known = move |turn: &mut Turn<'_>| {
        let Some(record) = turn.pool().session(session) else { return Some(false) };
        let open =
            matches!(record.lifecycle, Lifecycle::Starting | Lifecycle::Draining) || pool::is_between(record);
        (!open).then_some(record.lifecycle == Lifecycle::Live)
    };
    if !daemon.engine.wait_for(Some(OUTCOME_LIMIT), known).await? {
        return Box::pin(end::start_again(daemon, op, session, Again::default())).await;
    }
    let (context, operation) = (Arc::clone(daemon), op.clone());
    daemon.engine.turn(move |turn| conclude(turn, &context, &operation, session)).await?
}

/// Finds out what became of a creation of which nobody knows.
pub(crate) async fn resume(daemon: &Arc<Daemon>, session: SessionId) -> Result<(), Refusal> {
    let grant = daemon.engine.lock_inside(session, "start").await?;
    let record = daemon.engine.turn(move |turn| turn.pool().session(session).cloned()).await?;
    if let Some(record) = record.as_ref().filter(|s| pool::admit::is_adoption(s)) {
        return adopt::resume(daemon, record).await;
    }
    let Some(run) = record.filter(|s| s.lifecycle == Lifecycle::Starting).and_then(|s| s.incarnation) else {
        return Ok(());
    };
    match files::fence(&daemon.paths.run, run.tag) {
        Ok(Fence::Never) => {
            // It never ran and never will; what was decided still holds, with a new tag.
            let renewed = daemon.engine.turn(move |turn| launch::renew(turn, session, false)).await?;
            renewed.map_err(|e| Refusal::new(ErrorCode::Failed, e.to_string()))?;
            launch(daemon, session, |_| ()).await?;
        }
        Ok(Fence::Claimed) => found_again(daemon, session, &run).await?,
        Err(error) => tracing::error!(%session, %error, "its job file cannot be looked at"),
    }
    drop(grant);
    Ok(())
}

/// Its init claimed the job: it is, or was, in tmux. Until it is seen, or its init is proved to have
/// ended, the session stays `starting`.
async fn found_again(daemon: &Arc<Daemon>, session: SessionId, run: &Incarnation) -> Result<(), Refusal> {
    let run = launch::claimed(daemon, run);
    let placed = launch::find(daemon, &run, Duration::from_secs(2)).await;
    let seen = placed.is_some();
    let mut launched = launch::await_start(daemon, placed.unwrap_or_else(|| run.clone())).await;
    let ended = run.init.is_some_and(|init| process::identity::exited(init).unwrap_or(false));
    if let Launched::Unknown { .. } = launched
        && ended
    {
        let detail = "its init ended before the program ran".to_owned();
        launched = Launched::Failed { reason: Reason::TmuxFailed, detail, exit: None };
    }
    let ran_unseen = matches!(launched, Launched::Ran { exit: None, .. }) && !seen && !ended;
    if !ran_unseen {
        daemon.engine.turn(move |turn| launch::settle(turn, session, (run.tag, launched))).await?;
    }
    Ok(())
}
