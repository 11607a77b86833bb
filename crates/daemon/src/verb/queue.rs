//! `queue`: the messages of a session: listing, showing, settling and purging them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pool::worker::HANDLER_END;
use pool::{QueueRules, session};
use protocol::request::{Messages, Purge, ResolveMessage};
use protocol::{
    Event, Message, MessageId, MessageState, OsBytes, PROMPT, Refusal, Reply, Response, SessionRef,
};

use crate::decide::blocked::blocked_prompt;
use crate::decide::idempotency::{self, ClientOperation};
use crate::decide::{lock, queue};
use crate::engine::{Daemon, Turn};
use crate::host::blocking_pool::{self, Purpose};
use crate::verb::answer_parts::Parts;
use crate::verb::database;
use crate::verb::message_selection::select;

/// Maximum number of final messages in a listing without a limit.
const FINAL_SHOWN: u32 = 100;

/// Number of messages read at a time.
const PAGE: usize = 500;

/// Answers with a message.
pub(super) async fn show(daemon: &Arc<Daemon>, id: MessageId) -> Reply {
    let (message, _) = read(daemon, id).await?;
    Ok(Response::Message(Box::new(message)))
}

/// Answers with the body of a message.
pub(super) async fn body(daemon: &Arc<Daemon>, id: MessageId) -> Reply {
    let (_, body) = read(daemon, id).await?;
    Ok(Response::Body(OsBytes(body)))
}

/// Reads a message with its body.
async fn read(daemon: &Arc<Daemon>, id: MessageId) -> Result<(Message, Vec<u8>), Refusal> {
    let loaded = daemon.loaded();
    let read = move |turn: &mut Turn<'_>| {
        let mut found = queue::message(turn, id)?;
        if let Some((message, _)) = &mut found {
            explain(message, blocked_prompt(turn, &loaded.settings, message.session).as_ref());
            limit_attempts(message, &loaded.settings.queue);
            message.deadline_at = queue::deadline_at(turn, id);
        }
        found.ok_or_else(|| queue::no_such_message(id))
    };
    daemon.engine.turn(read).await?
}

/// Sets the limit of attempts that is in force for a message, unless it is over.
fn limit_attempts(message: &mut Message, rules: &QueueRules) {
    if !message.status.state.is_final() {
        message.max_attempts = rules.max_attempts;
    }
}

/// Sets the reason of the queued prompt that is `blocked`.
fn explain(message: &mut Message, blocked: Option<&(MessageId, String)>) {
    let is_blocked = |id: MessageId| id == message.id && message.status.state == MessageState::Queued;
    if let Some((_, why)) = blocked.filter(|(id, _)| is_blocked(*id)) {
        message.status.reason = Some(why.as_str().into());
    }
}

/// Lists all messages that are not final, and the newest final ones.
pub(super) async fn list_all(daemon: &Arc<Daemon>, session: SessionRef, parts: Parts<'_>) -> Reply {
    let all = Messages { session, kinds: Vec::new(), states: Vec::new(), limit: FINAL_SHOWN };
    send_messages(daemon, all, true, parts).await
}

/// Lists as many messages as were asked for: those that are not final first, then the newest final ones.
pub(super) async fn list(daemon: &Arc<Daemon>, asked: Messages, parts: Parts<'_>) -> Reply {
    send_messages(daemon, asked, false, parts).await
}

/// Reads the [selected](select) messages outside of the engine. Sends them as fast as the client reads.
async fn send_messages(daemon: &Arc<Daemon>, asked: Messages, all_open: bool, parts: Parts<'_>) -> Reply {
    let loaded = daemon.loaded();
    let rules = loaded.settings.queue.clone();
    let choose = move |turn: &mut Turn<'_>| {
        let session = pool::session::resolve(turn.pool(), &asked.session)?.id;
        let held = turn.pool().held_messages().filter(|open| open.session == session);
        let deadlines = held.filter_map(|open| Some((open.id, queue::deadline_at(turn, open.id)?)));
        let blocked = blocked_prompt(turn, &loaded.settings, session);
        let shown = (blocked, deadlines.collect::<BTreeMap<_, _>>());
        Ok((select(turn, session, &asked, all_open), shown, turn.reader()))
    };
    let (ids, (blocked, deadlines), reader) = daemon.engine.turn(choose).await??;
    for ids in ids.chunks(PAGE) {
        let (ids, reader) = (ids.to_vec(), reader.clone());
        let read = daemon
            .blocking
            .without_timeout(Purpose::DatabaseReads, move || reader.messages(&ids))
            .await
            .map_err(blocking_pool::refusal)?;
        let mut messages = read.map_err(|e| database::read_failed(daemon, &e))?;
        for message in &mut messages {
            explain(message, blocked.as_ref());
            limit_attempts(message, &rules);
            message.deadline_at = deadlines.get(&message.id).copied();
        }
        parts.send(Response::Messages(messages)).await?;
    }
    Ok(Response::Messages(Vec::new()))
}

/// Ends an in-doubt message.
pub(super) async fn resolve(daemon: &Arc<Daemon>, op: &ClientOperation, asked: ResolveMessage) -> Reply {
    settle(daemon, op, asked.id, move |turn, _| pool::queue::resolve(turn.pool(), &asked, turn.now())).await
}

pub(super) async fn cancel(daemon: &Arc<Daemon>, op: &ClientOperation, id: MessageId) -> Reply {
    let decide = move |turn: &mut Turn<'_>, _: &Daemon| {
        let held = turn.pool().find_held(id).and_then(|open| Some((open.holder?.clone(), open.token)));
        let events = pool::queue::cancel(turn.pool(), id, turn.now())?;
        if let Some((holder, token)) = held {
            let times = (turn.now(), turn.mono());
            turn.volatile.workers.note_cancelled(id, (&holder, token), times);
        }
        Ok(events)
    };
    settle(daemon, op, id, decide).await
}

/// Queues a message again, unless a handler may still work it.
pub(super) async fn retry(daemon: &Arc<Daemon>, op: &ClientOperation, id: MessageId) -> Reply {
    let decide = move |turn: &mut Turn<'_>, daemon: &Daemon| {
        if let Some(left) = time_of_handler(turn, daemon, id)? {
            let when = match left.as_secs() {
                0 if left.is_zero() => "its worker does not answer: retry it once that has ended".to_owned(),
                seconds => format!("retry it in {} s", seconds + 1),
            };
            let why = format!("{id} was cancelled in work, and its handler may still run: {when}");
            return Err(Refusal::conflict(why));
        }
        pool::queue::retry(turn.pool(), &daemon.loaded().settings.queue, id, turn.now())
    };
    settle(daemon, op, id, decide).await
}

/// Returns the time for which a handler of a cancelled message may still run. After a start of the daemon it is unknown
/// which worker had it: then the usual lease counts.
fn time_of_handler(turn: &Turn<'_>, daemon: &Daemon, id: MessageId) -> Result<Option<Duration>, Refusal> {
    if let Some((_, left)) = turn.volatile.workers.cancelled_handler(id, turn.mono()) {
        return Ok(Some(left));
    }
    let window = daemon.loaded().settings.queue.lease + HANDLER_END;
    if daemon.started.elapsed() > window {
        return Ok(None);
    }
    let Some((message, _)) = queue::message(turn, id)? else { return Ok(None) };
    let status = &message.status;
    let was_held =
        status.state == MessageState::Cancelled && status.token.is_some() && message.kind != PROMPT;
    let is_from_before = !turn.pool().is_surely_earlier(turn.now(), daemon.started_at, status.changed_at);
    let left = window.saturating_sub(turn.age(status.changed_at));
    Ok(Some(left).filter(|left| was_held && is_from_before && !left.is_zero()))
}

/// Commits the events that `decide` returns for a message, and answers with the message.
async fn settle(
    daemon: &Arc<Daemon>,
    op: &ClientOperation,
    id: MessageId,
    decide: impl FnOnce(&mut Turn<'_>, &Daemon) -> Result<Vec<Event>, Refusal> + Send + 'static,
) -> Reply {
    let (context, operation) = (Arc::clone(daemon), op.clone());
    let settle = move |turn: &mut Turn<'_>| {
        let events = decide(turn, &context)?;
        turn.emit_all(events);
        let reply = queue::shown(turn, id);
        if let Ok(Response::Message(message)) = &reply
            && message.status.state == MessageState::Queued
        {
            lock::mark_used_for_send(turn, message, operation.under);
        }
        // The prompts behind it, and those who wait for it.
        turn.wake();
        operation.record_answer(turn, &reply);
        reply
    };
    daemon.engine.turn(settle).await?
}

/// Deletes final messages, some in each turn, so that other requests do not wait long.
pub(super) async fn purge(daemon: &Arc<Daemon>, op: &ClientOperation, asked: Purge) -> Reply {
    let wanted = asked.clone();
    let check = move |turn: &mut Turn<'_>| {
        let session = session::resolve(turn.pool(), &wanted.session)?;
        pool::queue::check_purge(turn.pool(), session, &wanted).map(|()| session.id)
    };
    let session = daemon.engine.turn(check).await??;
    let mut messages = 0;
    loop {
        let (asked, operation) = (asked.clone(), op.clone());
        let part = move |turn: &mut Turn<'_>| {
            let events = pool::queue::purge(turn.pool(), session, &asked, turn.now());
            let (forgotten, more) = (events.len() as u64, events.len() == pool::queue::FORGET_BATCH);
            idempotency::forget_messages(turn, events);
            let reply = Ok(Response::Purged { messages: messages + forgotten });
            if !more {
                operation.record_answer(turn, &reply);
            }
            (forgotten, more, reply)
        };
        let (forgotten, more, reply) = daemon.engine.turn(part).await?;
        messages += forgotten;
        if !more {
            return reply;
        }
    }
}
