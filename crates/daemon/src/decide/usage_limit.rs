//! Agents at their usage limit: their slots are freed for others, and once the limit is over they are told to
//! continue, once for each limit.

use std::time::Duration;

use pool::agent::is_before;
use pool::clock::Moment;
use pool::slots::begin_park;
use pool::{queue, slots};
use protocol::event::AgentEvent;
use protocol::message::PROMPT;
use protocol::request::Send;
use protocol::session::Reason;
use protocol::{
    Event, Lifecycle, MessageId, MessageState, MessageStatus, Notes, OpId, OsBytes, Session, SessionId,
    SessionRef, Tag, Timestamp,
};

use crate::decide::lock;
use crate::decide::queue::{body, send as queue_message};
use crate::engine::Turn;
use crate::engine::daemon::Daemon;

/// Remaining time of a limit above which the session is parked.
pub(crate) const PARKED_LIMIT_MIN: Duration = Duration::from_secs(60);

/// Delay after the end of a limit before the agent is told to continue: its maker's clock may differ.
pub(crate) const CONTINUE_DELAY: Duration = Duration::from_secs(5);

/// Origin of the message that tells an agent to continue.
pub(crate) const ORIGIN: &str = "pool:limit";

/// Handles all agents at their limit. Returns the incarnations to be parked.
pub(crate) fn tick(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<(SessionId, Tag)> {
    let now = turn.now();
    let limited = |session: &&Session| {
        let activity = turn.pool().activity(session.id);
        let tag = session.tag();
        let activity =
            activity.filter(|activity| activity.tag == tag && session.lifecycle == Lifecycle::Live);
        // This includes a limit that ended before it was handled.
        activity.is_some_and(|activity| activity.limited_until.is_some())
    };
    let found: Vec<Session> = turn.pool().sessions().filter(limited).cloned().collect();
    let mut parked = Vec::new();
    for session in found {
        let until =
            turn.pool().activity(session.id).and_then(|activity| activity.limited_until).unwrap_or(now);
        schedule_continue(turn, daemon, &session, until);
        parked.extend(park(turn, daemon, &session, until));
    }
    parked
}

/// Queues the prompt that tells an agent to continue once its limit is over: one for each end of a limit that
/// it names.
pub(crate) fn schedule_continue(turn: &mut Turn<'_>, daemon: &Daemon, session: &Session, until: Timestamp) {
    let Some(text) = daemon.loaded().settings.agent_of(session).go_on.clone() else { return };
    let notes = turn.pool().notes(session.id).cloned().unwrap_or_default();
    if !turn.volatile.agents.continue_after(session.id, until) {
        return;
    }
    // A message that is already queued waits for the new time.
    if let Some(queued) = queued_continue(turn, session.id) {
        return delay_until(turn, session.id, queued, until.after(CONTINUE_DELAY));
    }
    let mut send = Send {
        session: SessionRef::from(session.id),
        body: OsBytes::from(text),
        kind: PROMPT.to_owned(),
        key: Some(format!("go-on:{}", until.0)),
        origin: ORIGIN.to_owned(),
        enter: true,
        priority: 100,
        ..Send::default()
    };
    let op = OpId::Named(format!("go-on-{}-{}", session.id, until.0));
    // An earlier daemon has sent it: it may be typed by now, or left to a person.
    if let Some(known) = turn.pool().message_by_operation(&op) {
        return delay_until(turn, session.id, known, until.after(CONTINUE_DELAY));
    }
    let sent = body(&mut send).and_then(|body| queue_message(turn, daemon, (&op, None), (&send, body)));
    match sent {
        Ok(protocol::Response::Sent(sent)) => {
            lock::mark_own_prompt(turn, &sent.message);
            delay_until(turn, session.id, sent.message.id, until.after(CONTINUE_DELAY));
        }
        Ok(_) => {}
        Err(refusal) => {
            return tracing::warn!(session = %session.id, %refusal, "it is not told to continue");
        }
    }
    let notes = Notes { resumes: notes.resumes + 1, ..notes };
    turn.emit(Event::Agent(AgentEvent::AgentNoted { session: session.id, notes }));
}

/// Returns the queued message that is to tell an agent to continue.
pub(crate) fn queued_continue(turn: &Turn<'_>, session: SessionId) -> Option<MessageId> {
    let open = queue::waiting_prompt(turn.pool(), session)?;
    let found = turn.message(open.id).ok()??;
    (found.0.origin == ORIGIN).then_some(open.id)
}

/// Delays a message that is still queued.
pub(crate) fn delay_until(turn: &mut Turn<'_>, session: SessionId, id: MessageId, at: Timestamp) {
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

/// Cancels the queued message that is to tell an agent to continue: it finished a turn, so its limit is over, and it goes
/// on already.
pub(crate) fn limit_lifted(turn: &mut Turn<'_>, session: SessionId, moment: Moment) {
    let Some(id) = queued_continue(turn, session) else { return };
    let Some(open) = turn.pool().pending_message(session, id) else { return };
    // The late report of a turn from before the limit does not end it.
    if is_before(turn.pool(), (moment, turn.now()), open.created_at) {
        return;
    }
    let is_due = open.not_before.is_none_or(|at| at <= turn.now());
    let why = if is_due {
        "it finished a turn after its usage limit, before it was told to"
    } else {
        "it finished a turn before the end of its usage limit"
    };
    let why = Some(why.into());
    let event = queue::transition(&open, protocol::MessageState::Cancelled, why, turn.now());
    turn.emit(event);
}

/// Begins to park a session, if nothing is lost by it. Returns its incarnation.
pub(crate) fn park(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    until: Timestamp,
) -> Option<(SessionId, Tag)> {
    let settings = &daemon.loaded().settings;
    let counts = turn.pool().queue_counts(Some(session.id));
    let free = session.attached_clients == 0 && session.lock.is_none() && !session.policy.pinned;
    let at_rest = counts.claimed + counts.in_doubt == 0 && !turn.volatile.prompts.is_delivering(session.id);
    let resumes = session.conversation.as_ref().is_some_and(|conversation| conversation.begun);
    let is_long = until.since(turn.now()) >= PARKED_LIMIT_MIN;
    if !(free && at_rest && is_long && resumes && slots::is_parkable(settings, session)) {
        return None;
    }
    let parked = begin_park(turn, session, Reason::Limited)?;
    tracing::info!(session = %session.id, "parked until its usage limit ends");
    Some(parked)
}
