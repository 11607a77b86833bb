//! What an agent's own record of the conversation tells that no hook did: a prompt that it took, a turn that ended.

use std::time::Duration;

use agents::text::{Same, compare};
use agents::transcript::{Ending, Said};
use pool::{Agent, queue};
use protocol::hook::{Hook, Signal};
use protocol::{ActivityState, MessageId, MessageState, Timestamp};

use super::Subject;
use super::look::Found;
use crate::context::Daemon;
use crate::engine::Turn;
use crate::{delivery, hooks};

/// How long a hook may take to tell of the end of a turn that is recorded.
const HOOK_LIMIT: Duration = Duration::from_secs(3);

/// When its user interrupted it last.
pub(super) fn interrupted_at(found: &Found) -> Option<Timestamp> {
    found.ended.as_ref().filter(|end| end.how == Ending::Interrupted)?.at
}

/// Takes in what is recorded, as if a hook had said it. Whether there was something.
pub(super) fn read(turn: &mut Turn<'_>, daemon: &Daemon, subject: &Subject, found: &Found) -> bool {
    // An agent without a start hook may have its first prompt before any report.
    if !subject.hooked && subject.agent.adapter.has_start_hook() {
        return false;
    }
    if let Some((said, text)) = taken(turn, subject, found) {
        tell(turn, daemon, subject, (Signal::Prompt { text, cut: false, turn: None }, said));
        if let Some((signal, at)) = ending(found).filter(|(_, at)| *at >= said) {
            tell(turn, daemon, subject, (signal, at));
        }
        return true;
    }
    let accepted = queue::held_prompt(turn.pool(), subject.id);
    let accepted = accepted.filter(|open| open.state == MessageState::Accepted).map(|open| open.since);
    let rests =
        matches!(subject.known.state, ActivityState::Idle | ActivityState::Unknown | ActivityState::Error);
    if let Some((signal, at)) =
        ending(found).filter(|(_, at)| rests && accepted.is_some_and(|since| *at >= since))
    {
        tell(turn, daemon, subject, (signal, at));
        return true;
    }
    let busy = subject.known.state == ActivityState::Busy;
    let since = subject.notes.heard_at.unwrap_or_default().max(subject.known.since);
    let late = |at: Timestamp| at > since || turn.age(at) >= HOOK_LIMIT && at >= subject.known.since;
    match ending(found).filter(|(_, at)| busy && late(*at) && turn.age(*at) >= HOOK_LIMIT) {
        Some((signal, at)) => {
            tell(turn, daemon, subject, (signal, at.max(since)));
            true
        }
        None => false,
    }
}

/// How the last turn ended, as a hook would say it, and when.
fn ending(found: &Found) -> Option<(Signal, Timestamp)> {
    let end = found.ended.as_ref()?;
    let signal = match &end.how {
        Ending::Done => Signal::TurnOver { turn: end.turn.clone(), said: None },
        Ending::Limited(limit) => {
            Signal::TurnFailed { error: limit.text.clone(), limited: true, until: limit.until }
        }
        Ending::Failed(error) => Signal::TurnFailed { error: error.clone(), limited: false, until: None },
        Ending::Interrupted => return None,
    };
    Some((signal, end.at?))
}

/// The prompt that was typed and not confirmed, where it is recorded: when, and its text.
fn taken(turn: &Turn<'_>, subject: &Subject, found: &Found) -> Option<(Timestamp, String)> {
    let id = subject.unconfirmed?;
    let open = turn.pool().open_message(subject.id, id)?;
    if !open.state.is_unconfirmed() {
        return None;
    }
    let (typed_at, body) = typed(turn, &subject.agent, id)?;
    let is_it = |said: &&Said| {
        // One that waits for the running turn to end is recorded again when it is taken up.
        !said.queued
            && said.at.is_some_and(|at| at >= typed_at)
            && compare(subject.agent.adapter, &body, &said.text, false) == Same::Exact
    };
    let said = found.said.iter().find(is_it)?;
    Some((said.at?, said.text.clone()))
}

/// When a message was last typed, and its text.
fn typed(turn: &Turn<'_>, agent: &Agent, id: MessageId) -> Option<(Timestamp, String)> {
    let (message, body) = turn.message(id).ok()??;
    let body = delivery::text_of(turn, agent, &message, body);
    Some((message.typing_began()?, String::from_utf8_lossy(&body).into_owned()))
}

fn tell(turn: &mut Turn<'_>, daemon: &Daemon, subject: &Subject, (signal, at): (Signal, Timestamp)) {
    let hook = Hook {
        session: subject.id,
        tag: subject.tag,
        id: id_of(subject, at, &signal),
        at,
        agent: subject.agent.adapter.word().to_owned(),
        conversation: None,
        transcript: None,
        signal,
    };
    hooks::recorded(turn, daemon, hook);
}

/// The same record is read more than once, and means the same each time.
fn id_of(subject: &Subject, at: Timestamp, signal: &Signal) -> u64 {
    let kind = [u8::from(matches!(signal, Signal::Prompt { .. }))];
    let bytes = subject.tag.0.iter().chain(&kind).copied().chain(at.0.to_le_bytes());
    crate::digest::digest(&bytes.collect::<Vec<u8>>())
}
