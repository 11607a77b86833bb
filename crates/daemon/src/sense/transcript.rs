//! What an agent's own record of the conversation tells that no hook did: a prompt that it took, a turn that ended.

use std::time::Duration;

use agents::prompt::{TextMatch, compare};
use agents::transcript::{RecordedPrompt, TurnOutcome};
use pool::{Agent, queue};
use protocol::hook::{Hook, HookEvent};
use protocol::{ActivityState, MessageId, MessageState, Timestamp};

use crate::decide::{hook, prompt};
use crate::engine::Turn;
use crate::engine::context::Daemon;
use crate::sense::screen::Found;
use crate::sense::subject::Subject;

/// How long a hook may take to tell of the end of a turn that is recorded.
const HOOK_LIMIT: Duration = Duration::from_secs(3);

/// When its user interrupted it last.
pub(crate) fn interrupted_at(found: &Found) -> Option<Timestamp> {
    found.ended.as_ref().filter(|end| end.outcome == TurnOutcome::Interrupted)?.at
}

/// Takes in what is recorded, as if a hook had said it. Whether there was something.
pub(crate) fn read(turn: &mut Turn<'_>, daemon: &Daemon, subject: &Subject, found: &Found) -> bool {
    // An agent without a start hook may have its first prompt before any report.
    if !subject.hooked && subject.agent.adapter.has_start_hook() {
        return false;
    }
    if let Some((said, text)) = taken(turn, subject, found) {
        tell(turn, daemon, subject, (HookEvent::Prompt { text, cut: false, turn: None }, said));
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
fn ending(found: &Found) -> Option<(HookEvent, Timestamp)> {
    let end = found.ended.as_ref()?;
    let signal = match &end.outcome {
        TurnOutcome::Done => HookEvent::TurnOver { turn: end.turn.clone(), said: None },
        TurnOutcome::Limited(limit) => {
            HookEvent::TurnFailed { error: limit.text.clone(), limited: true, until: limit.until }
        }
        TurnOutcome::Failed(error) => {
            HookEvent::TurnFailed { error: error.clone(), limited: false, until: None }
        }
        TurnOutcome::Interrupted => return None,
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
    let is_it = |said: &&RecordedPrompt| {
        // One that waits for the running turn to end is recorded again when it is taken up.
        !said.queued
            && said.at.is_some_and(|at| at >= typed_at)
            && compare(subject.agent.adapter, &body, &said.text, false) == TextMatch::Exact
    };
    let said = found.said.iter().find(is_it)?;
    Some((said.at?, said.text.clone()))
}

/// When a message was last typed, and its text.
fn typed(turn: &Turn<'_>, agent: &Agent, id: MessageId) -> Option<(Timestamp, String)> {
    let (message, body) = turn.message(id).ok()??;
    let body = prompt::text_of(turn, agent, &message, body);
    Some((message.typing_began()?, String::from_utf8_lossy(&body).into_owned()))
}

fn tell(turn: &mut Turn<'_>, daemon: &Daemon, subject: &Subject, (signal, at): (HookEvent, Timestamp)) {
    let hook = Hook {
        session: subject.id,
        tag: subject.tag,
        id: id_of(subject, at, &signal),
        at,
        agent: subject.agent.adapter.as_str().to_owned(),
        conversation: None,
        transcript: None,
        signal,
    };
    hook::recorded(turn, daemon, hook);
}

/// The same record is read more than once, and means the same each time.
fn id_of(subject: &Subject, at: Timestamp, signal: &HookEvent) -> u64 {
    let kind = [u8::from(matches!(signal, HookEvent::Prompt { .. }))];
    let bytes = subject.tag.0.iter().chain(&kind).copied().chain(at.0.to_le_bytes());
    crate::host::digest::digest(&bytes.collect::<Vec<u8>>())
}
