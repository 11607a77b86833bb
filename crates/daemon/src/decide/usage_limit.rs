//! Agents that have used up what they may: their slots go to others, and once the limit is over they are told to go on, once for each
//! time that they name.

use pool::scheduler::begin_park;
use std::time::Duration;

use pool::{queue, slots};
use protocol::event::AgentEvent;
use protocol::message::PROMPT;
use protocol::request::Send;
use protocol::session::Reason;
use protocol::{
    Event, Lifecycle, MessageId, MessageStatus, Notes, OpId, OsBytes, Session, SessionId, SessionRef, Tag,
    Timestamp,
};

use crate::engine::Turn;
use crate::engine::context::Daemon;

/// A limit that is over sooner is waited for in its slot.
pub(crate) const WORTH_PARKING: Duration = Duration::from_secs(60);

/// After the limit, before the agent is told to go on: its maker's clock is not ours.
pub(crate) const AFTER: Duration = Duration::from_secs(5);

/// By whom an agent is told to go on.
pub(crate) const ORIGIN: &str = "pool:limit";

/// Sees to all of them. Answers which are put aside.
pub(crate) fn see_to(turn: &mut Turn<'_>, daemon: &Daemon) -> Vec<(SessionId, Tag)> {
    let now = turn.now();
    let limited = |session: &&Session| {
        let activity = turn.pool().activity(session.id);
        let tag = session.incarnation.as_ref().map(|run| run.tag);
        let activity =
            activity.filter(|activity| activity.tag == tag && session.lifecycle == Lifecycle::Live);
        // Also one that is over before anybody looked.
        activity.is_some_and(|activity| activity.limited_until.is_some())
    };
    let found: Vec<Session> = turn.pool().sessions().filter(limited).cloned().collect();
    let mut aside = Vec::new();
    for session in found {
        let until =
            turn.pool().activity(session.id).and_then(|activity| activity.limited_until).unwrap_or(now);
        go_on_later(turn, daemon, &session, until);
        aside.extend(put_aside(turn, daemon, &session, until));
    }
    aside
}

/// Queues what it is told once the limit is over: once for each time that it is told of.
pub(crate) fn go_on_later(turn: &mut Turn<'_>, daemon: &Daemon, session: &Session, until: Timestamp) {
    let Some(text) = daemon.loaded().settings.agent_of(session).go_on.clone() else { return };
    let notes = turn.pool().notes(session.id).cloned().unwrap_or_default();
    if !turn.volatile.agents.go_on_after(session.id, until) {
        return;
    }
    // What waits to tell it so already waits for the new time.
    if let Some(waiting) = waiting(turn, session.id) {
        return not_before(turn, session.id, waiting, until.after(AFTER));
    }
    let mut send = Send {
        session: SessionRef::from(session.id),
        body: OsBytes::from(text),
        kind: PROMPT.to_owned(),
        key: Some(format!("go-on:{}", until.0)),
        origin: ORIGIN.to_owned(),
        ttl_ms: None,
        enter: true,
        raw: false,
        priority: 100,
        cause: None,
        wake: false,
    };
    let op = OpId::Named(format!("go-on-{}-{}", session.id, until.0));
    let sent = crate::decide::queue::body(&mut send)
        .and_then(|body| crate::decide::queue::send(turn, daemon, &op, (&send, body)));
    match sent {
        Ok(protocol::Response::Sent(sent)) => {
            not_before(turn, session.id, sent.message.id, until.after(AFTER));
        }
        Ok(_) => {}
        Err(refusal) => {
            return tracing::warn!(session = %session.id, %refusal, "it is not told to go on");
        }
    }
    let notes = Notes { resumes: notes.resumes + 1, ..notes };
    turn.emit(Event::Agent(AgentEvent::AgentNoted { session: session.id, notes }));
}

/// The message that is to tell it to go on, while that waits.
pub(crate) fn waiting(turn: &Turn<'_>, session: SessionId) -> Option<MessageId> {
    let open = queue::waiting_prompt(turn.pool(), session)?;
    let found = turn.message(open.id).ok()??;
    (found.0.origin == ORIGIN).then_some(open.id)
}

pub(crate) fn not_before(turn: &mut Turn<'_>, session: SessionId, id: MessageId, at: Timestamp) {
    let Some(open) = turn.pool().open_message(session, id) else { return };
    let reason = Some("after the usage limit");
    let Event::MessageChanged { id, session, status } =
        queue::moved(&open, protocol::MessageState::Queued, reason, turn.now())
    else {
        return;
    };
    let status = Box::new(MessageStatus { not_before: Some(at), ..*status });
    turn.emit(Event::MessageChanged { id, session, status });
}

/// An agent has finished a turn: whatever its limit was, it is over, and there is nothing to wait for any more.
pub(crate) fn lifted(turn: &mut Turn<'_>, session: SessionId) {
    let Some(id) = waiting(turn, session) else { return };
    let Some(open) = turn.pool().open_message(session, id) else { return };
    if open.not_before.is_none_or(|at| at <= turn.now()) {
        return;
    }
    let why = Some("it finished a turn before its usage limit was to be over");
    let event = queue::moved(&open, protocol::MessageState::Cancelled, why, turn.now());
    turn.emit(event);
}

/// Gives its slot to others, where nothing is lost by that.
pub(crate) fn put_aside(
    turn: &mut Turn<'_>,
    daemon: &Daemon,
    session: &Session,
    until: Timestamp,
) -> Option<(SessionId, Tag)> {
    let settings = &daemon.loaded().settings;
    let counts = queue::counts(turn.pool(), Some(session.id));
    let free = session.attached_clients == 0 && session.lock.is_none() && !session.policy.pinned;
    let at_rest = counts.claimed + counts.in_doubt == 0 && !turn.volatile.prompts.is_delivering(session.id);
    let resumes = session.conversation.as_ref().is_some_and(|conversation| conversation.begun);
    let worth = until.since(turn.now()) >= WORTH_PARKING;
    if !(free && at_rest && worth && resumes && slots::is_parkable(settings, session)) {
        return None;
    }
    let parked = begin_park(turn, session, Reason::Limited)?;
    tracing::info!(session = %session.id, "parked until its usage limit is over");
    Some(parked)
}
