//! Agents at their usage limit: their slots are freed for others, and once the limit is over they are told to
//! continue, once for each limit.

use std::time::Duration;

use pool::agent::cancel_continue;
use pool::clock::Moment;
use pool::{queue, slots};
use protocol::request::Send;
use protocol::{
    AgentEvent, ErrorCode, Event, Lifecycle, MessageId, MessageState, MessageStatus, Notes, OpId, OsBytes,
    PROMPT, Reply, Response, Session, SessionId, SessionRef, Tag, Timestamp,
};

use crate::decide::lock;
use crate::decide::queue::{body, send as queue_message};
use crate::engine::{Daemon, Turn};

/// Delay after the end of a limit before the agent is told to continue: its maker's clock may differ.
const CONTINUE_DELAY: Duration = Duration::from_secs(5);

/// Origin of the message that tells an agent to continue.
const ORIGIN: &str = "pool:limit";

/// Priority of this message: the highest.
const PRIORITY: i8 = 100;

/// Handles all agents at their limit. Returns the incarnations to be parked.
pub(crate) fn tick(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<(SessionId, Tag)> {
    let limited = |session: &Session| Some((session.clone(), end_of_limit(turn, session)?));
    let found: Vec<(Session, Timestamp)> = turn.pool().sessions().filter_map(limited).collect();
    let (mut parked, loaded) = (Vec::new(), daemon.loaded());
    for (session, until) in found {
        schedule_continue(turn, daemon, &session, until);
        let run = slots::park_limited(turn, &loaded.settings, &session, until);
        if run.is_some() {
            tracing::info!(session = %session.id, "parked until its usage limit ends");
        }
        parked.extend(run);
    }
    parked
}

/// Handles a limit in the same turn as its report: in the next turn the session may already be parked for another one.
pub(crate) fn limit_reported(turn: &mut Turn<'_>, daemon: &Daemon, session: SessionId) {
    let Some(session) = turn.pool().session(session).cloned() else { return };
    if let Some(until) = end_of_limit(turn, &session) {
        schedule_continue(turn, daemon, &session, until);
    }
}

/// Returns the end of the usage limit of a live session's agent, even if the limit was over before it was handled.
fn end_of_limit(turn: &Turn<'_>, session: &Session) -> Option<Timestamp> {
    let activity = turn.pool().activity(session.id).filter(|_| session.lifecycle == Lifecycle::Live)?;
    activity.limited_until.filter(|_| activity.tag == session.tag())
}

/// Queues the prompt that tells an agent to continue once its limit is over: one for each limit, told apart by its end.
/// If it is refused, the next tick tries again.
fn schedule_continue(turn: &mut Turn<'_>, daemon: &Daemon, session: &Session, until: Timestamp) {
    let Some(text) = daemon.loaded().settings.agent_of(session).go_on.clone() else { return };
    if turn.volatile.agents.continued(session.id).is_some_and(|(at, _)| at == until) {
        return;
    }
    let op = OpId::Named(format!("go-on-{}-{}", session.id, until.0));
    // An earlier daemon may have sent it, and it may be typed by now or left to a person. If it is still queued, it is
    // put off to the new time.
    let known = turn.pool().message_by_operation(&op).or_else(|| queued_continue(turn, session.id));
    let id = match known {
        Some(known) => known,
        // The message of an old limit may have been cancelled, and forgotten.
        None if may_be_forgotten(turn, session.id) => {
            return turn.volatile.agents.note_continued(session.id, until, None);
        }
        None => match send_continue(turn, daemon, (session.id, until), (&op, text)) {
            Ok(Response::Sent(sent)) => {
                lock::mark_own_prompt(turn, &sent.message);
                count_resume(turn, session.id);
                sent.message.id
            }
            Ok(_) => return,
            // The queue or the disk is full for now.
            Err(refusal) if refusal.code == ErrorCode::Refused => {
                return tracing::debug!(session = %session.id, %refusal, "it is not told to continue yet");
            }
            Err(refusal) => {
                tracing::warn!(session = %session.id, %refusal, "it is not told to continue");
                return turn.volatile.agents.note_continued(session.id, until, None);
            }
        },
    };
    turn.volatile.agents.note_continued(session.id, until, Some(id));
    delay_until(turn, session.id, id, until.after(CONTINUE_DELAY));
}

/// True if a message that was queued when the limit was reached may be forgotten by now.
fn may_be_forgotten(turn: &Turn<'_>, session: SessionId) -> bool {
    let met_at = turn.pool().activity(session).map(|activity| activity.since);
    met_at.is_some_and(|at| turn.age(at) > queue::keep_time(true))
}

fn send_continue(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    (session, until): (SessionId, Timestamp),
    (op, text): (&OpId, String),
) -> Reply {
    let mut send = Send {
        session: SessionRef::from(session),
        body: OsBytes::from(text),
        kind: PROMPT.to_owned(),
        key: Some(format!("go-on:{}", until.0)),
        origin: ORIGIN.to_owned(),
        enter: true,
        priority: PRIORITY,
        ..Send::default()
    };
    let body = body(&mut send)?;
    queue_message(turn, daemon, (op, None), (&send, body))
}

fn count_resume(turn: &mut Turn<'_>, session: SessionId) {
    let notes = turn.pool().notes(session).cloned().unwrap_or_default();
    let notes = Notes { resumes: notes.resumes + 1, ..notes };
    turn.emit(Event::Agent(AgentEvent::AgentNoted { session, notes }));
}

/// Returns the queued message that is to tell an agent to continue. One that an earlier daemon queued is found only if
/// it is the next prompt.
fn queued_continue(turn: &Turn<'_>, session: SessionId) -> Option<MessageId> {
    let is_queued = |id: &MessageId| {
        let open = turn.pool().pending_message(session, *id);
        open.is_some_and(|open| open.state == MessageState::Queued)
    };
    let noted = turn.volatile.agents.continued(session).and_then(|(_, message)| message);
    noted.filter(is_queued).or_else(|| {
        let next = queue::waiting_prompt(turn.pool(), session)?;
        let (message, _) = turn.message(next.id).ok()??;
        (message.origin == ORIGIN).then_some(next.id)
    })
}

/// Delays a message that is still queued.
fn delay_until(turn: &mut Turn<'_>, session: SessionId, id: MessageId, at: Timestamp) {
    let open = turn.pool().pending_message(session, id);
    let Some(open) = open.filter(|open| open.state == MessageState::Queued) else { return };
    let reason = Some("after the usage limit".into());
    let Event::MessageChanged { id, session, status } =
        queue::transition(&open, protocol::MessageState::Queued, reason, turn.now())
    else {
        return;
    };
    let status = Box::new(MessageStatus { not_before: Some(at), ..*status });
    turn.emit(Event::MessageChanged { id, session, status });
}

/// Cancels the queued message that is to tell an agent to continue: the agent has finished a turn, so its limit is over
/// and it works again.
pub(crate) fn limit_lifted(turn: &mut Turn<'_>, session: SessionId, moment: Moment) {
    let Some(id) = queued_continue(turn, session) else { return };
    let Some(open) = turn.pool().pending_message(session, id) else { return };
    let cancelled = cancel_continue(turn.pool(), &open, (moment, turn.now()));
    turn.emit_all(cancelled);
}
