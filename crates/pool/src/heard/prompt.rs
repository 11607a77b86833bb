//! What becomes of the prompt that an agent has, or is to have.

use std::time::Duration;

use agents::Confirm;
use agents::prompt::TextMatch;
use protocol::activity::Source;
use protocol::hook::{Hook, HookEvent};
use protocol::message::{PROMPT, RESULT_MAX};
use protocol::{
    Activity, ActivityState, Event, Lifecycle, MessageState, MessageStatus, OsBytes, SessionId, Timestamp,
};

use super::{Hearing, is_before};
use crate::activity;
use crate::pool::Pool;
use crate::queue::{self, Open, Rules};
use crate::settings::{OnFailedTurn, OnInterrupted, Settings};

/// How long an agent that rests may take to say what became of its prompt: its record tells sooner.
const WORD_LIMIT: Duration = Duration::from_secs(15);

/// What a report means for it. `newer`: what one that overtook this one said.
pub(super) fn heard(pool: &Pool, hook: &Hook, hearing: Hearing<'_>, newer: Option<&Activity>) -> Vec<Event> {
    let Some(open) = queue::held_prompt(pool, hook.session) else { return Vec::new() };
    let now = hearing.now;
    let typed = matches!(open.state, MessageState::Typing | MessageState::Typed | MessageState::InDoubt);
    // The end of a turn before, told late, is not the end of this one.
    let accepted = open.state == MessageState::Accepted && !is_before(hook, open.since, now);
    match &hook.signal {
        HookEvent::Prompt { .. } if typed => taken(pool, &open, hook, hearing, newer),
        HookEvent::TurnOver { said, turn } if accepted => {
            let another = turn.as_deref().zip(hearing.turn).is_some_and(|(ended, its)| ended != its);
            let over = if another { in_another_turn(&open, now) } else { done(&open, said.as_deref(), now) };
            [over].into_iter().chain(queue::reopen(pool, open.session, open.kind)).collect()
        }
        HookEvent::TurnFailed { error, limited, .. } if accepted => {
            failed(pool, &open, (error, *limited), hearing)
        }
        HookEvent::Interrupted if accepted => {
            vec![interrupted(&open, (hearing.agent.on_interrupted, hearing.rules), now)]
        }
        _ => Vec::new(),
    }
}

/// The agent took the prompt. Where a newer report says that it rests, its turn is over as well.
fn taken(
    pool: &Pool,
    open: &Open<'_>,
    hook: &Hook,
    hearing: Hearing<'_>,
    newer: Option<&Activity>,
) -> Vec<Event> {
    let now = hearing.now;
    let HookEvent::Prompt { text, .. } = &hook.signal else { return Vec::new() };
    let around = match hearing.same {
        TextMatch::Exact => None,
        // Of one that may not have been typed, another text around it proves nothing: somebody else may have said that.
        TextMatch::Surrounded if open.state != MessageState::InDoubt && !queue::is_cut_off(pool, open) => {
            Some("with other text around it")
        }
        TextMatch::Altered if open.state == MessageState::Typed => return vec![altered(open, text, now)],
        TextMatch::Surrounded | TextMatch::Altered | TextMatch::Different => return Vec::new(),
    };
    let accepted = queue::moved(open, MessageState::Accepted, around, hook.at.min(now));
    let newer = newer.filter(|newer| newer.source == Source::Hook);
    let end = newer.map_or_else(Vec::new, |newer| match newer.state {
        ActivityState::Idle => {
            let reopened = queue::reopen(pool, open.session, open.kind);
            [done(open, None, now)].into_iter().chain(reopened).collect()
        }
        ActivityState::Error => {
            let error = newer.detail.as_deref().unwrap_or_default();
            failed(pool, open, (error, newer.limited_until.is_some()), hearing)
        }
        _ => Vec::new(),
    });
    std::iter::once(accepted).chain(end).collect()
}

/// Its agent took something else than what was typed: a person says what is to become of it, and nothing is typed behind it
/// meanwhile.
fn altered(open: &Open<'_>, text: &str, now: Timestamp) -> Event {
    // Redacted before it is quoted: behind `\\n` a key is not told from a word.
    let text = protocol::redact::text(text);
    let why = format!("altered: its agent got {:?}", protocol::bounds::cut(&text, 400));
    queue::moved(open, MessageState::InDoubt, Some(&why), now)
}

/// What fails one prompt may well fail the next: after several in a row they are held back. A usage limit has its own time.
fn failed(pool: &Pool, open: &Open<'_>, (error, limited): (&str, bool), hearing: Hearing<'_>) -> Vec<Event> {
    let why = format!("the agent's turn failed: {}", protocol::bounds::cut(error, 400));
    let kind = (open.session, open.kind);
    let held_back = || queue::held_back(pool, hearing.rules, kind, hearing.now, &why);
    if !limited && agents::payload::is_outage(hearing.agent.adapter, error) {
        match (hearing.agent.on_failed_turn, &hearing.agent.go_on) {
            (OnFailedTurn::Hold, Some(_)) => {
                return queue::suspended(hearing.rules, open, &why, hearing.now).into();
            }
            (OnFailedTurn::Retry, _) => {
                let again = queue::tried_again(hearing.rules, open, &why, hearing.now);
                return [again].into_iter().chain(held_back()).collect();
            }
            // There is nothing to tell it.
            (OnFailedTurn::Hold, None) | (OnFailedTurn::Next, _) => {}
        }
    }
    let dead = queue::moved(open, MessageState::Dead, Some(&why), hearing.now);
    let held_back = (!limited).then(held_back);
    [dead].into_iter().chain(held_back.into_iter().flatten()).collect()
}

/// The agent's turn is over: so is the prompt, with the last that the agent said as its result.
fn done(open: &Open<'_>, said: Option<&str>, now: Timestamp) -> Event {
    let result = said.map(|said| OsBytes::from(protocol::bounds::cut(said, RESULT_MAX)));
    match queue::moved(open, MessageState::Done, None, now) {
        Event::MessageChanged { id, session, status } => {
            Event::MessageChanged { id, session, status: Box::new(MessageStatus { result, ..*status }) }
        }
        other => other,
    }
}

/// The turn of a prompt that somebody else said in between is over, and what was said last is the answer to that.
fn in_another_turn(open: &Open<'_>, now: Timestamp) -> Event {
    queue::moved(open, MessageState::Done, Some("another prompt came in between; its turn is over"), now)
}

/// Somebody interrupted the turn that a prompt began.
#[must_use]
pub fn interrupted(open: &Open<'_>, then: (OnInterrupted, &Rules), now: Timestamp) -> Event {
    broken_off(open, then, "interrupted", now)
}

fn broken_off(open: &Open<'_>, (then, rules): (OnInterrupted, &Rules), why: &str, now: Timestamp) -> Event {
    match then {
        OnInterrupted::Dead => queue::moved(open, MessageState::Dead, Some(why), now),
        OnInterrupted::Retry => queue::tried_again(rules, open, why, now),
    }
}

/// Whether nothing more can come of what an agent was given: its incarnation is over.
fn is_gone(pool: &Pool, open: &Open<'_>, now: Timestamp) -> bool {
    let given = matches!(open.state, MessageState::Typed | MessageState::Accepted) && open.kind == PROMPT;
    let Some(session) = pool.session(open.session).filter(|_| given) else { return false };
    // Where the clock went back to before its start, it says nothing.
    let another = |started_at: Timestamp| open.since < started_at && started_at <= now;
    let another = session.incarnation.as_ref().is_none_or(|run| another(run.started_at));
    another || !matches!(session.lifecycle, Lifecycle::Live | Lifecycle::Draining)
}

/// Sessions whose agents ended with a prompt, of which their hooks may have left a word.
#[must_use]
pub fn ended_with_prompts(pool: &Pool, now: Timestamp) -> Vec<SessionId> {
    let held = pool.held_messages().filter(|open| is_gone(pool, open, now));
    held.map(|open| open.session).collect()
}

/// Prompts that the agents of these sessions had when they ended: nothing more comes of them.
#[must_use]
pub fn agent_ended(pool: &Pool, sessions: &[SessionId], now: Timestamp) -> Vec<Event> {
    let why = |open: &Open<'_>| match open.state {
        MessageState::Accepted => "agent_ended",
        _ => "agent_ended before it confirmed the prompt",
    };
    let ended =
        pool.held_messages().filter(|open| sessions.contains(&open.session) && is_gone(pool, open, now));
    ended.map(|open| queue::moved(&open, MessageState::Dead, Some(why(&open)), now)).collect()
}

/// Prompts that agents took, and of which they said nothing more although they have been at rest for long enough: somebody
/// interrupted them, or their word was lost.
#[must_use]
pub fn stranded(pool: &Pool, settings: &Settings, now: Timestamp) -> Vec<Event> {
    let rests = |open: &Open<'_>| {
        let session = pool.session(open.session).filter(|session| session.takes_prompts())?;
        let agent = settings.agent_of(session);
        let activity = activity::shown(pool, session);
        let rests = !activity.state.is_at_work();
        let hooked = pool.notes(session.id).is_some_and(|notes| notes.hooked == activity.tag);
        let since = pool.latest(now, [activity.since, open.since]);
        let long = rests && hooked && agent.confirm == Confirm::Hook && pool.age(now, since) >= WORD_LIMIT;
        long.then_some(agent.on_interrupted)
    };
    let held =
        pool.held_messages().filter(|open| open.state == MessageState::Accepted && open.kind == PROMPT);
    let event = |open: Open<'_>| Some(broken_off(&open, (rests(&open)?, &settings.queue), STRANDED, now));
    held.filter_map(event).collect()
}

/// Why a prompt is over whose agent stopped without a word.
const STRANDED: &str = "interrupted: its agent stopped and did not say how the turn ended";
