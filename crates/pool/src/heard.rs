//! What an agent's hook says, taken in: what the agent does, what became of the prompt it has, which conversation it is.
//! Only the current incarnation is heard, only its own conversation, and each report once.

mod asks;
mod prompt;

use std::time::Duration;

use protocol::activity::{ASK_MAX, Ask, Source};
use protocol::bounds;
use protocol::event::AgentEvent;
use protocol::hook::{Hook, HookEvent, Notice, Start};
use protocol::session::Conversation;
use protocol::{Activity, ActivityState, Event, MessageState, Notes, Session, Timestamp};

use agents::prompt::TextMatch;

pub use asks::{asking, fits, open, unanswerable};
pub use prompt::{agent_ended, ended_with_prompts, interrupted, stranded};

use crate::pool::Pool;
use crate::queue::{self, Rules};
use crate::settings::Agent;

/// How long an agent is left alone that has used up what it may and does not say until when: limits of minutes are over
/// by then, and of a longer one little is lost to another try.
pub const UNTOLD_LIMIT: Duration = Duration::from_secs(15 * 60);

/// Pause before an agent is tried again that met its limit when it was told to go on: the hour that it shows has no seconds,
/// and its maker's clock is not ours.
const RETRY_PAUSE: Duration = Duration::from_secs(30);
/// The longest of these pauses, which double.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10 * 60);

/// An agent that tells of its rest has rested for longer: a minute, as measured.
const REST: Duration = Duration::from_secs(30);

/// What the shell adds to a report.
#[derive(Debug, Clone, Copy)]
pub struct Hearing<'a> {
    /// The agent's table.
    pub agent: &'a Agent,
    /// What the configuration says of queues.
    pub rules: &'a Rules,
    /// The turn that the prompt which it has began, where that is known.
    pub turn: Option<&'a str>,
    /// How the prompt that was typed last compares with the one that was heard.
    pub same: TextMatch,
    /// What the agent asks beside what is shown, oldest first.
    pub behind: &'a [Ask],
    /// Now.
    pub now: Timestamp,
}

/// What follows from a report: nothing, where it is not taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Heard {
    /// What changes.
    pub events: Vec<Event>,
    /// All that the agent asks now, oldest first.
    pub open: Vec<Ask>,
}

/// What follows from a report.
#[must_use]
pub fn heard(pool: &Pool, session: &Session, hook: &Hook, hearing: Hearing<'_>) -> Heard {
    let current = session.incarnation.as_ref().is_some_and(|run| run.tag == hook.tag);
    if !current {
        return Heard::default();
    }
    let known = conversation(session, hook, hearing.agent);
    let Ok(changed) = known else { return Heard::default() };
    // Of an agent that is over, what became of its prompt is still of interest.
    if !session.lifecycle.holds_slot() {
        return Heard { events: prompt::heard(pool, hook, hearing, None), open: Vec::new() };
    }
    let notes = pool.notes(session.id).cloned().unwrap_or_default();
    let now = hearing.now;
    let late = notes.hooked == Some(hook.tag) && notes.heard_at.is_some_and(|at| is_before(hook, at, now));
    let before = pool.activity_in(session.id, hook.tag).cloned().unwrap_or_default();
    let another =
        changed.is_some() && hook.conversation != session.conversation.as_ref().map(|known| known.id.clone());
    let mut events: Vec<Event> = changed.into_iter().collect();
    events.extend(queue::sent_from_the_start(pool, session.id, now).filter(|_| another));
    events.extend(prompt::heard(pool, hook, hearing, late.then_some(&before)));
    let open = open(&before, hearing.behind);
    // The request of a hook that waits is open, whatever overtook it, unless its turn is over.
    let works = before.state.is_at_work();
    let taken_in = !late || works && matches!(hook.signal, HookEvent::Permission { wait_ms: 1.., .. });
    // It tells of a long rest: of a prompt that was taken since then it knows nothing.
    let stale = matches!(hook.signal, HookEvent::Notified { kind: Notice::Idle, .. })
        && queue::held_prompt(pool, session.id)
            .is_some_and(|open| open.state == MessageState::Accepted && pool.age(hook.at, open.since) < REST);
    let taken_in = taken_in && !stale;
    let asked = if taken_in { asks::after(&open, hook) } else { open.clone() };
    if taken_in {
        let after = activity(&before, (&open, &asked), hook, (notes.resumes, now));
        events.extend(asks::answered(session.id, (&open, &asked), hook));
        events.extend(after.and_then(|after| turned(session, &before, after)));
    }
    let heard_at = if late { notes.heard_at } else { Some(hook.at.min(now)) };
    events.push(noted(session, notes, hook, heard_at));
    Heard { events, open: asked }
}

/// Whether it tells of something before this time. What the clock went back behind is no time to compare with.
fn is_before(hook: &Hook, at: Timestamp, now: Timestamp) -> bool {
    hook.at < at && at <= now
}

/// Whether it is this session's own conversation, and the event where that is another one now.
fn conversation(session: &Session, hook: &Hook, agent: &Agent) -> Result<Option<Event>, Foreign> {
    let Some(id) = &hook.conversation else { return Ok(None) };
    let known = session.conversation.as_ref();
    let begun = matches!(hook.signal, HookEvent::Prompt { .. });
    let is = |begun| {
        let conversation = Some(Conversation { id: id.clone(), begun });
        Event::ConversationChanged { session: session.id, conversation }
    };
    let chooses = known.is_some() && !agent.is_told_its_conversation();
    match known {
        Some(known) if known.id == *id => Ok((begun && !known.begun).then(|| is(true))),
        // Its own command begins another conversation in the same agent, or takes one up.
        _ if matches!(hook.signal, HookEvent::Started { source } if source != Start::New || chooses) => {
            Ok(Some(is(matches!(hook.signal, HookEvent::Started { source: Start::Resumed }))))
        }
        // The agent chooses its conversation itself.
        Some(known) if !known.begun && chooses => Ok(Some(is(begun))),
        // One that its program began on its own, which the pool could not know.
        None => Ok(None),
        Some(_) => Err(Foreign),
    }
}

/// The report is of another agent that runs inside of this one.
struct Foreign;

fn noted(session: &Session, notes: Notes, hook: &Hook, heard_at: Option<Timestamp>) -> Event {
    let skill = match &hook.signal {
        HookEvent::Working { skill, .. } => skill.clone(),
        HookEvent::Prompt { text, .. } => agents::payload::last_skill(text),
        _ => None,
    };
    let resumes = if matches!(hook.signal, HookEvent::TurnOver { .. }) { 0 } else { notes.resumes };
    let transcript = hook.transcript.clone().or(notes.transcript);
    let notes = Notes {
        hooked: Some(hook.tag),
        heard_at,
        transcript,
        tokens: notes.tokens,
        skill: skill.or(notes.skill),
        resumes,
    };
    Event::Agent(AgentEvent::AgentNoted { session: session.id, notes })
}

/// The event of an activity, where it is news.
#[must_use]
pub fn turned(session: &Session, before: &Activity, after: Activity) -> Option<Event> {
    let same =
        |a: &Activity, b: &Activity| (a.state, &a.ask, a.limited_until) == (b.state, &b.ask, b.limited_until);
    let turned = !same(before, &after) || before.tag != after.tag;
    if !turned && (before.source, &before.detail) == (after.source, &after.detail) {
        return None;
    }
    let since = if turned { after.since } else { before.since };
    let activity = Activity { since, ..after };
    Some(Event::Agent(AgentEvent::ActivityChanged { session: session.id, activity, turned }))
}

/// What the agent does after this, `open` and `asked` being what it asked before and asks now; none where that does not
/// change.
fn activity(
    before: &Activity,
    (open, asked): (&[Ask], &[Ask]),
    hook: &Hook,
    (resumes, now): (u32, Timestamp),
) -> Option<Activity> {
    let at = hook.at.min(now);
    let is = |state| Activity {
        state,
        source: Source::Hook,
        since: at,
        ask: None,
        detail: None,
        limited_until: None,
        tag: Some(hook.tag),
    };
    // What else goes on beside what is asked says nothing of that.
    if !asked.is_empty() {
        let before = Activity { tag: Some(hook.tag), ..before.clone() };
        return asks::asking(&before, asked, at.max(before.since).min(now)).filter(|_| asked != open);
    }
    match &hook.signal {
        HookEvent::Started { source: Start::Compacted } => None,
        HookEvent::Started { .. } | HookEvent::TurnOver { .. } | HookEvent::Interrupted => {
            Some(is(ActivityState::Idle))
        }
        HookEvent::Working { what, .. } => Some(Activity { detail: what.clone(), ..is(ActivityState::Busy) }),
        HookEvent::Prompt { .. } | HookEvent::ToolUsed(_) => Some(is(ActivityState::Busy)),
        HookEvent::Notified { kind: Notice::Idle, .. } => {
            (before.state != ActivityState::Idle).then(|| is(ActivityState::Idle))
        }
        HookEvent::Notified { .. } | HookEvent::Permission { .. } | HookEvent::Asking { .. } => None,
        HookEvent::TurnFailed { error, limited, until } => Some(Activity {
            detail: Some(bounds::cut(error, ASK_MAX).to_owned()),
            limited_until: limited.then(|| limited_until(*until, error, (resumes, now))),
            ..is(ActivityState::Error)
        }),
        // It may be put aside until its limit is over.
        HookEvent::Ended { .. } => {
            Some(Activity { limited_until: before.limited_until, ..is(ActivityState::Unknown) })
        }
    }
}

/// The time before which nothing is said to an agent that has used up what it may: what it names. Where that is over, and
/// the agent still meets its limit, the end of a pause, which doubles.
fn limited_until(until: Option<Timestamp>, error: &str, (resumes, now): (u32, Timestamp)) -> Timestamp {
    let told = until.or_else(|| agents::payload::limit_reset(error, now));
    match (until, told) {
        (_, None) if resumes == 0 => return now.after(UNTOLD_LIMIT),
        // To the second.
        (Some(at), _) if resumes == 0 => return at,
        (None, Some(at)) if resumes == 0 && at > now => return at,
        _ => {}
    }
    let pause = RETRY_PAUSE.saturating_mul(1 << resumes.saturating_sub(1).min(8)).min(RETRY_PAUSE_MAX);
    told.unwrap_or_default().max(now.after(pause))
}
