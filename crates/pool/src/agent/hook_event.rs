//! Handling of hook reports: they change the agent's activity, its prompt, and its conversation. Only reports
//! of the current incarnation and of its own conversation count, each once.

use std::time::Duration;

use agents::{Adapter, Confirm};
use protocol::activity::ASK_MAX;
use protocol::hook::{Hook, HookEvent, Notice, Start};
use protocol::session::Conversation;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, Event, MessageState, Notes, Session, Source, Timestamp, bounds,
};

use crate::agent::activity::activity_changed;
use crate::agent::asks::{answered_elsewhere, ask_activity, asks_after, open_asks};
use crate::agent::former_conversation::{ends_conversation, without_conversation};
use crate::agent::hook_inputs::{HookInputs, is_before};
use crate::agent::usage_limit::limited_until;
use crate::clock::moment_of;
use crate::pool::Pool;
use crate::prompt::confirm;
use crate::queue::prompts::held_prompt;
use crate::queue::settle;
use crate::session::conversation::begin_conversation;
use crate::settings::Agent;

/// Minimum rest before an agent's notice of its idleness; Claude Code sends it after a minute, as measured.
const IDLE_NOTICE_MIN: Duration = Duration::from_secs(30);

/// The consequences of a hook report; none if it is ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HookOutcome {
    /// The changes.
    pub events: Vec<Event>,
    /// All open questions of the agent, oldest first.
    pub open_asks: Vec<Ask>,
}

/// Handles a hook report.
#[must_use]
pub fn handle_hook(pool: &Pool, session: &Session, hook: &Hook, inputs: HookInputs<'_>) -> HookOutcome {
    let current = session.is_run(hook.tag);
    if !current {
        return HookOutcome::default();
    }
    let before = pool.activity_in(session.id, hook.tag).cloned().unwrap_or_default();
    let known = check_conversation((session, &before), hook, inputs.agent);
    let Ok(changed) = known else { return HookOutcome::default() };
    // After the agent's end, its report may still tell the outcome of its prompt.
    if !session.lifecycle.holds_slot() {
        return HookOutcome { events: confirm::confirm(pool, hook, inputs, None), open_asks: Vec::new() };
    }
    let notes = pool.notes(session.id).cloned().unwrap_or_default();
    let now = inputs.now;
    let late = notes.hooked == Some(hook.tag)
        && notes.heard_at.is_some_and(|at| is_before(pool, (inputs.moment, now), at));
    let another =
        changed.is_some() && hook.conversation != session.conversation.as_ref().map(|known| known.id.clone());
    let ended = changed.as_ref().is_some_and(|event| ends_conversation(session, event));
    let mut events: Vec<Event> = changed.into_iter().collect();
    events.extend(settle::restart_suspended(pool, session.id, now).filter(|_| another));
    events.extend(confirm::confirm(pool, hook, inputs, late.then_some(&before)));
    let open = open_asks(&before, inputs.queued_asks);
    // A late report is not taken in, except a permission request whose hook waits while the turn goes on: it is still
    // open.
    let works = before.state.is_at_work();
    let taken_in = !late || works && matches!(hook.signal, HookEvent::Permission { wait_ms: 1.., .. });
    // This notice reports that the agent has been idle for long. It may come after a prompt that was accepted in
    // between.
    let stale = matches!(hook.signal, HookEvent::Notified { kind: Notice::Idle, .. })
        && held_prompt(pool, session.id).is_some_and(|open| {
            open.state == MessageState::Accepted
                && moment_of(pool.clock(), open.since, now).until(inputs.moment) < IDLE_NOTICE_MIN
        });
    let taken_in = taken_in && !stale;
    let asked =
        if taken_in { asks_after(&open, (hook, inputs.moment), inputs.asked_at) } else { open.clone() };
    if taken_in {
        let after = activity_after(&before, (&open, &asked), hook, (notes.resumes, now));
        events.extend(answered_elsewhere(session.id, (&open, &asked), hook));
        events.extend(after.and_then(|after| activity_changed(session, &before, after)));
    }
    let heard_at = if late { notes.heard_at } else { Some(hook.at) };
    let notes = if ended { without_conversation(notes) } else { notes };
    let noted = note(notes, hook, heard_at);
    // A program that the pool does not know may have run an agent that has now ended: its activity is observed from
    // outside again.
    let is_over = inputs.agent.adapter == Adapter::None && matches!(hook.signal, HookEvent::Ended { .. });
    let hooked = noted.hooked.filter(|_| !is_over);
    let notes = Notes { hooked, ..noted };
    events.push(Event::Agent(AgentEvent::AgentNoted { session: session.id, notes }));
    HookOutcome { events, open_asks: asked }
}

/// Checks that the report is of the session's own conversation. Returns the event of a change of
/// conversation.
fn check_conversation(
    (session, before): (&Session, &Activity),
    hook: &Hook,
    agent: &Agent,
) -> Result<Option<Event>, ForeignAgent> {
    // The report may be another agent's: one that this agent has started, with hooks that the user installed, or one
    // that a person started in a shell.
    let is_own = match agent.adapter {
        Adapter::None => agent.confirm != Confirm::Prompt,
        own => Adapter::of(&hook.agent) == own,
    };
    if !is_own {
        return Err(ForeignAgent);
    }
    let begun = matches!(hook.signal, HookEvent::Prompt { .. });
    let Some(id) = &hook.conversation else {
        let begins = begun && resumes_last_conversation(session);
        return Ok(begins.then(|| begin_conversation(session)).flatten());
    };
    let known = session.conversation.as_ref();
    let is = |begun| {
        let conversation = Some(Conversation { id: id.clone(), begun });
        Event::ConversationChanged { session: session.id, conversation }
    };
    let chooses = known.is_some() && !agent.is_told_its_conversation();
    let ends = matches!(hook.signal, HookEvent::Ended { .. });
    let works = before.state.is_at_work() && before.source == Source::Hook;
    let begins = match hook.signal {
        // A working agent begins no conversation: the report is that of another agent of the same kind, which it has
        // started.
        HookEvent::Started { source: Start::New | Start::Resumed } if works => false,
        HookEvent::Started { source } => source != Start::New || chooses,
        _ => false,
    };
    match known {
        Some(known) if known.id == *id => Ok((begun && !known.begun).then(|| is(true))),
        // The agent's own command begins another conversation, or resumes one.
        _ if begins => Ok(Some(is(matches!(hook.signal, HookEvent::Started { source: Start::Resumed })))),
        // The agent chooses its conversation itself. A report of an end is about another conversation, which the agent
        // has left.
        Some(known) if !known.begun && chooses && !ends => Ok(Some(is(begun))),
        // A program that the pool does not know began a conversation.
        None => Ok(None),
        Some(_) => Err(ForeignAgent),
    }
}

/// True if the agent resumes its last conversation without being told which one.
fn resumes_last_conversation(session: &Session) -> bool {
    let args = &session.spec.resume_args;
    !args.is_empty() && !args.iter().any(|word| word.to_string_lossy().contains("{conversation}"))
}

/// The report comes from another agent that runs inside this one.
struct ForeignAgent;

fn note(notes: Notes, hook: &Hook, heard_at: Option<Timestamp>) -> Notes {
    let skill = match &hook.signal {
        HookEvent::Working { skill, .. } => skill.clone(),
        HookEvent::Prompt { text, .. } => agents::payload::last_skill(text),
        _ => None,
    };
    let resumes = if matches!(hook.signal, HookEvent::TurnOver { .. }) { 0 } else { notes.resumes };
    let transcript = hook.transcript.clone().or(notes.transcript);
    Notes {
        hooked: Some(hook.tag),
        heard_at,
        transcript,
        tokens: notes.tokens,
        skill: skill.or(notes.skill),
        resumes,
    }
}

/// The activity after a report, with the questions before (`open`) and after (`asked`) it; none if it does
/// not change.
fn activity_after(
    before: &Activity,
    (open, asked): (&[Ask], &[Ask]),
    hook: &Hook,
    (resumes, now): (u32, Timestamp),
) -> Option<Activity> {
    let at = hook.at;
    let is = |state| Activity {
        state,
        source: Source::Hook,
        since: at,
        ask: None,
        detail: None,
        limited_until: None,
        tag: Some(hook.tag),
    };
    // While a question is open, work on other tools does not change the activity.
    if !asked.is_empty() {
        let before = Activity { tag: Some(hook.tag), ..before.clone() };
        return ask_activity(&before, asked, at.max(before.since).min(now)).filter(|_| asked != open);
    }
    match &hook.signal {
        HookEvent::Started { source: Start::Compacted } => None,
        HookEvent::Started { .. } | HookEvent::TurnOver { .. } | HookEvent::Interrupted => {
            Some(is(ActivityState::Idle))
        }
        HookEvent::Working { what, .. } => Some(Activity { detail: what.clone(), ..is(ActivityState::Busy) }),
        HookEvent::Prompt { .. } | HookEvent::ToolUsed(_) => Some(is(ActivityState::Busy)),
        // An error stays until a prompt ends it; the notice of idleness does not.
        HookEvent::Notified { kind: Notice::Idle, .. } => {
            let is_news = !matches!(before.state, ActivityState::Idle | ActivityState::Error);
            is_news.then(|| is(ActivityState::Idle))
        }
        // Open questions have been handled above; without any, these reports change nothing.
        HookEvent::Notified { kind: Notice::Permission | Notice::Question | Notice::LoggedIn, .. }
        | HookEvent::Permission { .. }
        | HookEvent::Asking { .. } => None,
        HookEvent::TurnFailed { error, limited, until } => Some(Activity {
            detail: Some(bounds::cut(error, ASK_MAX).to_owned()),
            limited_until: limited.then(|| limited_until(*until, error, (resumes, hook.at, now))),
            ..is(ActivityState::Error)
        }),
        // The usage limit still holds, so that the session can be parked until its end.
        HookEvent::Ended { .. } => {
            Some(Activity { limited_until: before.limited_until, ..is(ActivityState::Unknown) })
        }
    }
}
