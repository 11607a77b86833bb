//! `new`: the intent on disk, then the launch under the session's lock, then the answer.

use crate::host::identity::identity;
use pool::scheduler::{Starter, begin_start};
use std::sync::Arc;

use pool::admit::{Admitted, Body, Launch, Made};
use protocol::message::PROMPT;
use protocol::request::{New, Send};
use protocol::{ErrorCode, Event, Message, MessageId, Refusal, Reply, Seq, Session, SessionId, SessionRef};

use crate::decide::idempotency::Op;
use crate::decide::lock;
use crate::decide::queue;
use crate::effect::cgroup;
use crate::effect::slot;
use crate::effect::slot::Decided;
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::host::blocking::Purpose;
use crate::host::{blocking, clock};
use crate::sense::capacity;
use crate::verb::start;
use crate::verb::start::{conclude, existing};

pub(crate) async fn new(daemon: &Arc<Daemon>, op: &Op, asked: New) -> Reply {
    check_directory(&asked).await?;
    cgroup::look(daemon).await;
    let first = first_message(&asked)?;
    let (context, operation, wait_ms) = (Arc::clone(daemon), op.clone(), asked.wait_slot_ms);
    let decide = move |turn: &mut Turn<'_>, ahead: usize| {
        admit(turn, &context, &operation, (&asked, first.as_ref(), ahead))
    };
    let admitted = slot::with_slot(daemon, Some(op), wait_ms, decide).await?;
    crate::crash::point("new-intent");
    match admitted {
        Way::Create(session) => start::run(daemon, op, session).await,
        Way::Start(before) => {
            let (context, operation, id) = (Arc::clone(daemon), op.clone(), before.id);
            let conclude = move |turn: &mut Turn<'_>| conclude(turn, &context, &operation, id);
            start::bring_up(daemon, *before, conclude).await?
        }
        Way::Existing(session) => existing(daemon, op, session).await,
    }
}

/// What an admitted request comes to, its slot taken.
pub(crate) enum Way {
    /// A new session.
    Create(SessionId),
    /// One that there was, as it was before its next start.
    Start(Box<Session>),
    /// One that runs, or is about to.
    Existing(SessionId),
}

/// Before anything is written: a directory that is not there is a mistake in the request.
pub(crate) async fn check_directory(asked: &New) -> Result<(), Refusal> {
    let Some(cwd) = asked.cwd.clone().or_else(|| asked.caller_cwd.clone()) else { return Ok(()) };
    let path = cwd.as_path().to_owned();
    match blocking::limited(Purpose::Places, move || path.is_dir()).await {
        Some(true) => Ok(()),
        Some(false) => {
            Err(Refusal::new(ErrorCode::Usage, format!("{} is not a directory", cwd.as_path().display())))
        }
        None => Err(Refusal::new(ErrorCode::Failed, format!("{} does not answer", cwd.as_path().display()))),
    }
}

/// The text of `--prompt`, as a message for the session to be.
pub(crate) fn first_message(asked: &New) -> Result<Option<(Send, Body)>, Refusal> {
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

pub(crate) fn admit(
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
            capacity::check(turn, daemon)?;
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
            turn.volatile.scheduler.begin_start(made.session);
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
pub(crate) fn start(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: &Op,
    (id, first, ahead): (SessionId, Option<&(Send, Body)>, usize),
) -> Result<Decided<Way>, Refusal> {
    let Some(before) = turn.pool().session(id).cloned() else { return Ok(Decided::Done(Way::Existing(id))) };
    if !pool::is_between(&before) {
        lock::free_for(turn, id, op.under)?;
        if pool::slots::free(turn.pool(), &daemon.settings()) <= ahead {
            return Ok(Decided::Full);
        }
        capacity::check(turn, daemon)?;
    }
    let message = match first {
        Some((send, body)) => {
            let seq = turn.next_seq();
            queue::first(turn, daemon, &before, (send, body), seq)?
        }
        None => None,
    };
    let starter = Starter::User { fresh: false };
    begin_start(turn, &daemon.settings(), &before, (starter, identity()?));
    op.begun(turn, id);
    if let Some((message, body)) = message {
        // Its number is its place in the journal.
        let id = MessageId(turn.next_seq().0);
        queue::queue_first(turn, (Message { id, ..message }, body));
    }
    Ok(Decided::Done(Way::Start(Box::new(before))))
}
