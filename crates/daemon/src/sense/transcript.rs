//! Events that only an agent's own record of the conversation shows, because no hook reported them: a prompt
//! that it took, a turn that ended.

use agents::transcript::TurnOutcome;
use pool::{Agent, agent, queue};
use protocol::hook::{Hook, HookEvent};
use protocol::{MessageId, MessageState, Timestamp, digest};

use crate::decide::{hook, prompt};
use crate::engine::{Daemon, Turn};
use crate::sense::sample_target::SampleTarget;
use crate::sense::session_sample::Sample;

/// Returns the time when its user interrupted its last turn.
pub(crate) fn interrupted_at(sample: &Sample) -> Option<Timestamp> {
    sample.ended.as_ref().filter(|end| end.outcome == TurnOutcome::Interrupted)?.at
}

/// Applies what is recorded, as if a hook had reported it. Returns true if there was something.
pub(crate) fn take_in(turn: &mut Turn<'_>, daemon: &Daemon, target: &SampleTarget, sample: &Sample) -> bool {
    // Only an agent without a start hook may get its first prompt before any report.
    if !target.hooked && target.agent.adapter.has_start_hook() {
        return false;
    }
    if let Some((said, text)) = recorded_prompt(turn, target, sample) {
        report(turn, daemon, target, (HookEvent::Prompt { text, cut: false, turn: None }, said));
        let is_later = |at| !agent::is_recorded_before(turn.pool(), turn.now(), at, said);
        let ended = ending(sample).filter(|(_, at)| is_later(*at));
        if let Some((signal, at)) = ended {
            report(turn, daemon, target, (signal, at));
        }
        return true;
    }
    let Some((signal, at)) = ending(sample) else { return false };
    let accepted = queue::held_prompt(turn.pool(), target.id);
    let accepted = accepted.filter(|open| open.state == MessageState::Accepted).map(|open| open.since);
    let known = (&target.known, target.notes.heard_at, accepted);
    let Some(at) = agent::recorded_end(turn.pool(), turn.now(), known, at) else { return false };
    report(turn, daemon, target, (signal, at));
    true
}

/// Returns the end of the last turn as a hook would report it, and its time.
fn ending(sample: &Sample) -> Option<(HookEvent, Timestamp)> {
    let end = sample.ended.as_ref()?;
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

/// Returns the time and the text of the unconfirmed prompt as the agent recorded it; `None` if it has not.
fn recorded_prompt(turn: &Turn<'_>, target: &SampleTarget, sample: &Sample) -> Option<(Timestamp, String)> {
    let id = target.unconfirmed?;
    let open = turn.pool().pending_message(target.id, id)?;
    if !open.state.is_unconfirmed() {
        return None;
    }
    let (typed_at, body) = last_typed(turn, &target.agent, id)?;
    let typed = (target.agent.adapter, body.as_str(), typed_at);
    let (at, text) = agent::recorded_prompt(turn.pool(), turn.now(), typed, &sample.said)?;
    Some((at, text.to_owned()))
}

/// Returns the time when a message was last typed, and its text.
fn last_typed(turn: &Turn<'_>, agent: &Agent, id: MessageId) -> Option<(Timestamp, String)> {
    let (message, body) = turn.message(id).ok()??;
    let body = prompt::typed_text(turn, agent, &message, body);
    Some((message.typing_began()?, String::from_utf8_lossy(&body).into_owned()))
}

fn report(turn: &mut Turn<'_>, daemon: &Daemon, target: &SampleTarget, (signal, at): (HookEvent, Timestamp)) {
    let hook = Hook {
        session: target.id,
        tag: target.tag,
        id: report_id(target, at, &signal),
        at,
        awake: None,
        agent: target.agent.adapter.as_str().to_owned(),
        conversation: None,
        transcript: None,
        signal,
    };
    hook::take_in_recorded(turn, daemon, hook);
}

/// Returns an id that is the same each time the same record is read.
fn report_id(target: &SampleTarget, at: Timestamp, signal: &HookEvent) -> u64 {
    let kind = [u8::from(matches!(signal, HookEvent::Prompt { .. }))];
    let bytes = target.tag.0.iter().chain(&kind).copied().chain(at.0.to_le_bytes());
    digest(&bytes.collect::<Vec<u8>>())
}
