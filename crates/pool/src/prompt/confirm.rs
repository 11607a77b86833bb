//! The outcome of the prompt that an agent has: accepted, done, failed, interrupted, abandoned.

use std::time::Duration;

use agents::Confirm;
use agents::prompt::TextMatch;
use protocol::hook::{Hook, HookEvent, Start};
use protocol::message::RESULT_MAX;
use protocol::policy::{OnFailedTurn, OnInterrupted};
use protocol::{
    Activity, ActivityState, Event, Lifecycle, MessageReason, MessageState, MessageStatus, OsBytes, PROMPT,
    SessionId, Source, Timestamp,
};

use crate::agent::activity::current_activity;
use crate::agent::hook_inputs::{HookInputs, is_before};
use crate::pool::Pool;
use crate::queue::pending::PendingMessage;
use crate::queue::prompts::held_prompt;
use crate::queue::transition::{status_changed, status_now, transition};
use crate::queue::{breaker, doubt, settle};
use crate::settings::{Agent, QueueRules, Settings};

/// Time that an agent at rest has to report the outcome of its prompt; usually its own record tells sooner.
const WORD_LIMIT: Duration = Duration::from_secs(15);

/// The consequences of a hook report for the agent's prompt. `newer` is the activity from a report that
/// overtook this one.
pub(crate) fn confirm(
    pool: &Pool,
    hook: &Hook,
    inputs: HookInputs<'_>,
    newer: Option<&Activity>,
) -> Vec<Event> {
    let now = inputs.now;
    let Some(message) = held_prompt(pool, hook.session) else {
        let is_over = matches!(hook.signal, HookEvent::TurnOver { .. });
        return settle::end_pause(pool, hook.session, now).filter(|_| is_over).into_iter().collect();
    };
    let typed = matches!(message.state, MessageState::Typing | MessageState::Typed | MessageState::InDoubt);
    // A late report of the end of an earlier turn is not the end of this one.
    let accepted =
        message.state == MessageState::Accepted && !is_before(pool, (inputs.moment, now), message.since);
    match &hook.signal {
        HookEvent::Prompt { .. } if typed => prompt_taken(pool, &message, hook, inputs, newer),
        // The prompt was the agent's own command for a fresh context, which has no turn.
        HookEvent::Started { source: Start::Cleared } if typed && inputs.text_match == TextMatch::Exact => {
            let done = transition(&message, MessageState::Done, Some(MessageReason::Cleared), now);
            breaker::with_close(pool, &message, done)
        }
        HookEvent::TurnOver { said, turn } if accepted => {
            let another = turn.as_deref().zip(inputs.turn).is_some_and(|(ended, its)| ended != its);
            let over = if another {
                // Another turn has ended: its last words are not the answer to this prompt.
                transition(&message, MessageState::Done, Some(MessageReason::OtherTurn), now)
            } else {
                turn_over(&message, said.as_deref(), now)
            };
            breaker::with_close(pool, &message, over)
        }
        HookEvent::TurnFailed { error, limited, .. } if accepted => {
            turn_failed(pool, &message, (error, *limited), inputs)
        }
        HookEvent::Interrupted if accepted => {
            let over = turn_interrupted(
                &message,
                (inputs.agent.on_interrupted, inputs.rules),
                MessageReason::Interrupted,
                now,
            );
            // A person ended the turn, so the agent works: if the prompt was a probe of the breaker, the breaker
            // closes.
            [over].into_iter().chain(breaker::close_open(pool, message.session, message.kind)).collect()
        }
        _ => Vec::new(),
    }
}

/// The agent accepted the prompt. If a newer report says that it rests, its turn is over as well.
fn prompt_taken(
    pool: &Pool,
    message: &PendingMessage<'_>,
    hook: &Hook,
    inputs: HookInputs<'_>,
    newer: Option<&Activity>,
) -> Vec<Event> {
    let now = inputs.now;
    let HookEvent::Prompt { text, .. } = &hook.signal else { return Vec::new() };
    // A report with another text counts only if the pool has certainly typed: otherwise a person may have typed that
    // text. A prompt in state `typing` counts as typed, as its report may come before the end of the typing is on
    // record, unless an earlier daemon left it so.
    let is_typed = message.state != MessageState::InDoubt && !settle::is_cut_off(pool, message);
    let around = match inputs.text_match {
        TextMatch::Exact => None,
        TextMatch::Surrounded if is_typed => Some(MessageReason::Surrounded),
        TextMatch::Altered if is_typed => return prompt_altered(message, text, inputs),
        TextMatch::Surrounded | TextMatch::Altered | TextMatch::Different => return Vec::new(),
    };
    let accepted = transition(message, MessageState::Accepted, around, hook.at);
    let newer = newer.filter(|newer| newer.source == Source::Hook);
    let end = newer.map_or_else(Vec::new, |newer| match newer.state {
        ActivityState::Idle => breaker::with_close(pool, message, turn_over(message, None, now)),
        ActivityState::Error => {
            let error = newer.detail.as_deref().unwrap_or_default();
            turn_failed(pool, message, (error, newer.limited_until.is_some()), inputs)
        }
        _ => Vec::new(),
    });
    std::iter::once(accepted).chain(end).collect()
}

/// The agent received another text than was typed. Unless the prompt says otherwise, a person has to resolve
/// it, and nothing is typed meanwhile.
fn prompt_altered(message: &PendingMessage<'_>, text: &str, inputs: HookInputs<'_>) -> Vec<Event> {
    // Redacted before it is quoted: a key behind an escaped line feed would not be recognised.
    let text = protocol::redact::text(text);
    let why = MessageReason::Altered(protocol::bounds::cut(&text, 400).to_owned());
    doubt::doubt(inputs.rules, message, &why, inputs.now)
}

/// The agent's turn failed. The next prompt may fail for the same reason: after several failures in a row
/// prompts are held back. A usage limit has a time of its own.
fn turn_failed(
    pool: &Pool,
    message: &PendingMessage<'_>,
    (error, limited): (&str, bool),
    inputs: HookInputs<'_>,
) -> Vec<Event> {
    let why = format!("the agent's turn failed: {}", protocol::bounds::cut(error, 400));
    let kind = (message.session, message.kind);
    let held_back = || breaker::count_failure(pool, inputs.rules, kind, inputs.now, &why);
    if !limited && agents::payload::is_outage(inputs.agent.adapter, error) {
        match (inputs.agent.on_failed_turn, &inputs.agent.go_on) {
            (OnFailedTurn::Hold, Some(_)) => {
                return settle::suspend(inputs.rules, message, &why, inputs.now).into();
            }
            (OnFailedTurn::Retry, _) => {
                let again = settle::queue_again(inputs.rules, message, why.as_str().into(), None, inputs.now);
                return [again].into_iter().chain(held_back()).collect();
            }
            // The agent has no prompt that tells it to continue, or the next message is to be typed instead.
            (OnFailedTurn::Hold, None) | (OnFailedTurn::Next, _) => {}
        }
    }
    let dead = transition(message, MessageState::Dead, Some(why.as_str().into()), inputs.now);
    let held_back = (!limited).then(held_back);
    [dead].into_iter().chain(held_back.into_iter().flatten()).collect()
}

/// The agent's turn is over and the prompt is done; the agent's last words are the result.
fn turn_over(message: &PendingMessage<'_>, said: Option<&str>, now: Timestamp) -> Event {
    let result = said.map(|said| OsBytes::from(protocol::bounds::cut(said, RESULT_MAX)));
    let done = status_now(message, MessageState::Done, None, now);
    status_changed(message, MessageStatus { result, ..done })
}

/// Settles the prompt of an agent that stopped without a report: it was interrupted. If the agent never reports how a
/// turn ended, the turn is over.
#[must_use]
pub fn stopped(
    pool: &Pool,
    message: &PendingMessage<'_>,
    (agent, rules): (&Agent, &QueueRules),
    why: MessageReason,
    now: Timestamp,
) -> Vec<Event> {
    if agent.adapter.tells_how_turns_end() {
        return vec![turn_interrupted(message, (agent.on_interrupted, rules), why, now)];
    }
    breaker::with_close(pool, message, turn_over(message, None, now))
}

fn turn_interrupted(
    message: &PendingMessage<'_>,
    (action, rules): (OnInterrupted, &QueueRules),
    why: MessageReason,
    now: Timestamp,
) -> Event {
    match action {
        OnInterrupted::Dead => transition(message, MessageState::Dead, Some(why), now),
        OnInterrupted::Retry => settle::queue_again(rules, message, why, None, now),
    }
}

/// True if the incarnation into which the prompt was typed is over.
fn is_abandoned(pool: &Pool, message: &PendingMessage<'_>, now: Timestamp) -> bool {
    let given =
        matches!(message.state, MessageState::Typed | MessageState::Accepted) && message.kind == PROMPT;
    let Some(session) = pool.session(message.session).filter(|_| given) else { return false };
    // A start counts as later only if that is certain, even if the clock was set back and showed its time twice.
    let another = |started_at: Timestamp| pool.is_surely_earlier(now, message.since, started_at);
    let another = session.incarnation.as_ref().is_none_or(|run| another(run.started_at));
    another || !matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining)
}

/// Sessions whose agents ended with a prompt. Their hook reports may still tell its outcome.
pub fn abandoned(pool: &Pool, now: Timestamp) -> Vec<SessionId> {
    let held = pool.held_messages().filter(|message| is_abandoned(pool, message, now));
    held.map(|message| message.session).collect()
}

/// Ends the prompts that the agents of these sessions had at their end.
#[must_use]
pub fn fail_abandoned(pool: &Pool, sessions: &[SessionId], now: Timestamp) -> Vec<Event> {
    let why = |message: &PendingMessage<'_>| match message.state {
        MessageState::Accepted => MessageReason::AgentEnded,
        _ => MessageReason::AgentEndedUnconfirmed,
    };
    let ended = pool
        .held_messages()
        .filter(|message| sessions.contains(&message.session) && is_abandoned(pool, message, now));
    ended.map(|message| transition(&message, MessageState::Dead, Some(why(&message)), now)).collect()
}

/// Ends prompts whose agents have been at rest for `WORD_LIMIT` without reporting an outcome: a person
/// interrupted them, or the report was lost.
#[must_use]
pub fn end_stranded(pool: &Pool, settings: &Settings, now: Timestamp) -> Vec<Event> {
    let rests = |message: &PendingMessage<'_>| {
        let session = pool.session(message.session).filter(|session| session.takes_prompts())?;
        let agent = settings.agent_of(session);
        let activity = current_activity(pool, session);
        let rests = !activity.state.is_at_work();
        let hooked = pool.notes(session.id).is_some_and(|notes| notes.hooked == activity.tag);
        let since = pool.latest(now, [activity.since, message.since]);
        let long = rests && hooked && agent.confirm == Confirm::Hook && pool.age(now, since) >= WORD_LIMIT;
        long.then_some(agent)
    };
    let held = pool
        .held_messages()
        .filter(|message| message.state == MessageState::Accepted && message.kind == PROMPT);
    let events = |message: PendingMessage<'_>| {
        let agent = rests(&message)?;
        Some(stopped(pool, &message, (agent, &settings.queue), MessageReason::Stranded, now))
    };
    held.filter_map(events).flatten().collect()
}
