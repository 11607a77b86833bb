//! `new`: the intent on disk, then the launch under the session's lock, then the answer.

use std::sync::Arc;

use pool::queue::Body;
use pool::session::{CreateInputs, CreateOutcome};
use pool::slots::{RunIdentity, Starter, Wanted, begin_start};
use protocol::policy::Naming;
use protocol::request::{New, Send};
use protocol::{Event, Message, MessageId, PROMPT, Refusal, Reply, Seq, Session, SessionId};

use crate::decide::idempotency::ClientOperation;
use crate::decide::{lock, queue};
use crate::effect::cgroup;
use crate::effect::slot::{self, SlotDecision};
use crate::effect::tmux_server;
use crate::engine::{Daemon, Turn};
use crate::host::{clock, random};
use crate::sense::{machine_capacity, user_dirs};
use crate::verb::start;

pub(super) async fn new(daemon: &Arc<Daemon>, op: &ClientOperation, asked: New) -> Reply {
    if let Some(cwd) = asked.cwd.as_ref().or(asked.caller_cwd.as_ref()) {
        user_dirs::check(daemon, cwd.as_path()).await?;
    }
    cgroup::refresh(daemon).await;
    daemon.refresh_disk(0).await;
    let wait_ms = asked.wait_slot_ms;
    let named = asked.workspace.as_ref().or(asked.name.as_ref()).map(|name| name.trim().to_owned());
    let reused = named.clone().filter(|_| asked.reuse);
    if !daemon.engine.turn(move |turn: &mut Turn<'_>| has_slot(turn, reused.as_deref())).await? {
        start::check_room(daemon, 0).await?;
        tmux_server::check_reachable(daemon).await?;
    }
    let wanted = named.map(Wanted::Name);
    let is_generated = asked.name.is_none() && asked.workspace.is_none();
    let is_numbered = is_generated && daemon.settings().naming == Naming::Numeric;
    let creation = Creation { prompt: first_prompt(&asked)?, asked };
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let decide =
        move |turn: &mut Turn<'_>, ahead: usize| decide(turn, &context, &operation, &creation, ahead);
    let outcome =
        slot::with_slot(daemon, slot::Requester::Operation(op.clone()), (wait_ms, wanted), decide).await?;
    crate::crash::point("new-intent");
    match outcome {
        Outcome::Created(session) => start::launch_new(daemon, op, (session, is_numbered)).await,
        Outcome::Started(before) => {
            let (context, operation, id) = (Arc::clone(daemon), op.clone(), before.id);
            let conclude = move |turn: &mut Turn<'_>| start::conclude(turn, &context, &operation, id);
            start::launch_next(daemon, *before, conclude).await?
        }
        Outcome::Existing(session) => start::ensure_running(daemon, op, session).await,
    }
}

/// True if a session has this name and holds a slot: nothing is started for it.
fn has_slot(turn: &Turn<'_>, name: Option<&str>) -> bool {
    name.and_then(|name| turn.pool().named(name)).is_some_and(|session| session.lifecycle.holds_slot())
}

/// A request whose prompt was checked.
struct Creation {
    asked: New,
    prompt: Option<(Send, Body)>,
}

/// The result of the decision. A slot is taken if the session needs one.
enum Outcome {
    Created(SessionId),
    /// An existing session is to start again; this is its record from before that.
    Started(Box<Session>),
    /// A session that runs, or is about to.
    Existing(SessionId),
}

/// Returns the message with the text of `--prompt`. The session is filled in when it is queued.
fn first_prompt(asked: &New) -> Result<Option<(Send, Body)>, Refusal> {
    let Some(body) = asked.prompt.clone() else { return Ok(None) };
    let mut send = Send {
        body,
        kind: PROMPT.to_owned(),
        origin: "new".to_owned(),
        enter: true,
        wake: true,
        ..Send::default()
    };
    let body = queue::body(&mut send)?;
    Ok(Some((send, body)))
}

/// Decides on the request while `ahead` others wait for a slot before it. The session and its prompt are
/// committed together or not at all.
fn decide(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: &ClientOperation,
    creation: &Creation,
    ahead: usize,
) -> Result<SlotDecision<Outcome>, Refusal> {
    let now = turn.now();
    let RunIdentity { tag, conversation } = random::identity(&*daemon.world.random)?;
    let stamp = clock::name_stamp(now);
    let tmux_names = turn.volatile.observed.names();
    let tmux_names = tmux_names.as_slice();
    let inputs = CreateInputs { tag, now, stamp: &stamp, conversation: &conversation, ahead, tmux_names };
    let prompt = creation.prompt.as_ref();
    match pool::session::create(turn.pool(), &daemon.settings(), &creation.asked, &inputs)? {
        CreateOutcome::Full => Ok(SlotDecision::Full),
        CreateOutcome::Start(id) => start_existing(turn, daemon, op, (id, prompt), ahead),
        CreateOutcome::Create(made) => {
            if let Err(short) = machine_capacity::check(turn, daemon) {
                return Ok(SlotDecision::Short(short));
            }
            let message = match (prompt, made.events.first()) {
                (Some((send, body)), Some(Event::SessionCreated(session))) => {
                    let seq = Seq(turn.next_seq().0 + 1);
                    queue::decide_first(turn, daemon, session, (send, body), seq)?
                }
                _ => None,
            };
            turn.emit_all(made.events);
            op.record_begun(turn, made.session);
            turn.volatile.scheduler.begin_start(made.session);
            message.into_iter().for_each(|message| queue::queue_first(turn, message, op.under));
            Ok(SlotDecision::Done(Outcome::Created(made.session)))
        }
        CreateOutcome::Existing(id) => {
            // To an existing session, the prompt is a message like any other.
            if let (Some((send, body)), Some(session)) = (prompt, turn.pool().session(id).cloned()) {
                let seq = turn.next_seq();
                let message = queue::decide_first(turn, daemon, &session, (send, body), seq)?;
                message.into_iter().for_each(|message| queue::queue_first(turn, message, op.under));
                op.record_begun(turn, id);
            }
            Ok(SlotDecision::Done(Outcome::Existing(id)))
        }
    }
}

/// Decides the next start of an existing session, together with its prompt.
fn start_existing(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    op: &ClientOperation,
    (id, prompt): (SessionId, Option<&(Send, Body)>),
    ahead: usize,
) -> Result<SlotDecision<Outcome>, Refusal> {
    let Some(before) = turn.pool().session(id).cloned() else {
        return Ok(SlotDecision::Done(Outcome::Existing(id)));
    };
    if !pool::session::is_restarting(&before) {
        lock::check_unlocked(turn, id, op.under)?;
        if pool::slots::free(turn.pool(), &daemon.settings()) <= ahead {
            return Ok(SlotDecision::Full);
        }
        if let Err(short) = machine_capacity::check(turn, daemon) {
            return Ok(SlotDecision::Short(short));
        }
    }
    let message = match prompt {
        Some((send, body)) => {
            let seq = turn.next_seq();
            queue::decide_first(turn, daemon, &before, (send, body), seq)?
        }
        None => None,
    };
    let starter = Starter::User { fresh: false };
    begin_start(turn, &daemon.settings(), &before, (starter, random::identity(&*daemon.world.random)?));
    op.record_begun(turn, id);
    if let Some((message, body)) = message {
        // A message's id is its sequence number in the journal.
        let id = MessageId(turn.next_seq().0);
        queue::queue_first(turn, (Message { id, ..message }, body), op.under);
    }
    Ok(SlotDecision::Done(Outcome::Started(Box::new(before))))
}
