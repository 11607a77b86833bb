//! Events that only an agent's own record of the conversation shows, because no hook reported them: a prompt
//! that it took, a turn that ended.

use std::time::Duration;

use agents::prompt::{TextMatch, compare};
use agents::transcript::{RecordedPrompt, TurnOutcome};
use pool::clock::moment_of;
use pool::{Agent, agent, queue};
use protocol::hook::{Hook, HookEvent};
use protocol::{ActivityState, MessageId, MessageState, Timestamp, digest};

use crate::decide::{hook, prompt};
use crate::engine::{Daemon, Turn};
use crate::sense::sample_target::SampleTarget;
use crate::sense::session_sample::Sample;

/// Time for which a hook may lag behind the record of a turn's end.
const HOOK_LIMIT: Duration = Duration::from_secs(3);

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
        let ended = ending(sample).filter(|(_, at)| !is_before(turn, *at, said));
        if let Some((signal, at)) = ended {
            report(turn, daemon, target, (signal, at));
        }
        return true;
    }
    let now = turn.now();
    let accepted = queue::held_prompt(turn.pool(), target.id);
    let accepted = accepted.filter(|open| open.state == MessageState::Accepted).map(|open| open.since);
    let rests =
        matches!(target.known.state, ActivityState::Idle | ActivityState::Unknown | ActivityState::Error);
    if let Some((signal, at)) =
        ending(sample).filter(|(_, at)| rests && accepted.is_some_and(|since| !is_before(turn, *at, since)))
    {
        report(turn, daemon, target, (signal, at));
        return true;
    }
    let busy = target.known.state == ActivityState::Busy;
    let since = target.notes.heard_at.into_iter().chain([target.known.since]);
    let since = turn.pool().latest(now, since);
    // A hook's report may have come a moment later than what it reports.
    let is_of_turn = |at: Timestamp| !is_before(turn, at, target.known.since);
    match ending(sample).filter(|(_, at)| busy && is_of_turn(*at) && turn.age(*at) >= HOOK_LIMIT) {
        Some((signal, at)) => {
            let at = turn.pool().latest(now, [at, since]);
            report(turn, daemon, target, (signal, at));
            true
        }
        None => false,
    }
}

/// True if an entry of the record with this time is from before another time.
fn is_before(turn: &Turn<'_>, at: Timestamp, than: Timestamp) -> bool {
    let (pool, now) = (turn.pool(), turn.now());
    agent::is_before(pool, (moment_of(pool.clock(), at, now), now), than)
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
    let is_it = |said: &&RecordedPrompt| {
        // A prompt that waits for the running turn is recorded again when it is taken up.
        !said.queued
            && said.at.is_some_and(|at| !is_before(turn, at, typed_at))
            && compare(target.agent.adapter, &body, &said.text, false) == TextMatch::Exact
    };
    let said = sample.said.iter().find(is_it)?;
    Some((said.at?, said.text.clone()))
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
