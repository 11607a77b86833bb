//! What an agent asks of people: more than one thing, where it works at several at a time. They are shown one after the
//! other, the oldest first.

use protocol::activity::{ASK_MAX, Ask, AskKind, Source};
use protocol::bounds::{LIST_MAX, cut};
use protocol::event::AgentEvent;
use protocol::hook::{Hook, HookEvent, Notice, Start, ToolUse};
use protocol::request::Approve;
use protocol::{Activity, ActivityState, ErrorCode, Event, Refusal, SessionId, Timestamp};

use crate::pool::Pool;

/// All that is asked: what is shown, and what waits behind that.
#[must_use]
pub fn open(shown: &Activity, behind: &[Ask]) -> Vec<Ask> {
    let first = shown.ask.iter().filter(|ask| ask.kind != AskKind::Bell);
    // What waited behind something that is not shown any more is over with it.
    let behind = if shown.ask.is_some() { behind } else { &[] };
    first.chain(behind).cloned().collect()
}

/// What is asked after a report.
pub(super) fn after(open: &[Ask], hook: &Hook) -> Vec<Ask> {
    let mut open = open.to_vec();
    let ask = |kind, text: &str, tool: Option<&str>, answerable| {
        let (text, tool) = (cut(text, ASK_MAX).to_owned(), tool.map(str::to_owned));
        Ask { id: hook.id, kind, text, tool, answerable }
    };
    match &hook.signal {
        HookEvent::Permission { tool, text, wait_ms } => {
            // Only of a request whose hook waits is it known that it is open still.
            open.retain(|ask| ask.answerable && ask.id != hook.id);
            let questions = agents::payload::asks_questions(tool);
            let kind = if questions { AskKind::Question } else { AskKind::Permission };
            // Questions that were not understood have no text.
            let answerable = *wait_ms > 0 && (kind == AskKind::Permission || !text.is_empty());
            open.push(ask(kind, text, Some(tool), answerable));
        }
        HookEvent::Asking { tool } => {
            open.retain(|ask| ask.answerable);
            open.push(ask(AskKind::Question, tool, Some(tool), false));
        }
        HookEvent::ToolUsed(used) => {
            open.retain(|ask| ask.tool.is_some());
            if let Some(at) = open.iter().position(|ask| is_for(ask, used)) {
                open.remove(at);
            }
        }
        HookEvent::Notified { kind: kind @ (Notice::Permission | Notice::Question), text } => {
            let permission = *kind == Notice::Permission;
            let kind = if permission { AskKind::Permission } else { AskKind::Question };
            // Of what is asked already it is only a reminder.
            if open.is_empty() {
                open.push(ask(kind, text, None, false));
            }
        }
        HookEvent::Started { source: Start::Compacted }
        | HookEvent::Notified { kind: Notice::LoggedIn, .. } => {}
        // Of a tool that it asks for, other work beside it says nothing.
        HookEvent::Working { .. } => open.retain(|ask| ask.tool.is_some()),
        _ => open.clear(),
    }
    // What an agent forgot to take back does not grow without end.
    let excess = open.len().saturating_sub(LIST_MAX);
    open.drain(..excess);
    open
}

/// Whether it is the use of the tool that was asked for: others of the same tool may go on beside it.
fn is_for(ask: &Ask, used: &ToolUse) -> bool {
    let does = || agents::payload::tool_summary(&used.input).filter(|_| ask.kind == AskKind::Permission);
    ask.tool.as_ref() == Some(&used.tool) && does().is_none_or(|does| does == ask.text)
}

/// Whether what is said answers what is asked.
///
/// # Errors
/// Conflict, with what to say instead: a question takes words, a permission a yes or no.
pub fn fits(ask: &Ask, said: &Approve, name: &str) -> Result<(), Refusal> {
    let conflict = |why: String| Err(Refusal::new(ErrorCode::Conflict, why));
    let questions = if ask.kind == AskKind::Question { ask.text.lines().count() } else { 0 };
    match (said.deny, questions, said.answers.len()) {
        (true, _, 0) => Ok(()),
        (true, ..) => conflict("an answer is no denial: say one of them".to_owned()),
        (false, questions, given) if questions == given => Ok(()),
        (false, 0, _) => {
            conflict(format!("{name} asks for a permission: `poolctl approve {name}`, or --deny"))
        }
        (false, 1, 0) => conflict(format!("{name} asks a question: --answer TEXT, or --deny --reason TEXT")),
        (false, questions, given) => conflict(format!(
            "{name} asks {questions} questions, and {given} answers were given: --answer TEXT for each, in their order"
        )),
    }
}

/// What an agent does that asks this, the first of all it asks; none where it asks nothing.
#[must_use]
pub fn asking(before: &Activity, open: &[Ask], now: Timestamp) -> Option<Activity> {
    let first = open.first()?;
    let more: Vec<String> = open[1..].iter().map(|ask| ask.id.to_string()).collect();
    Some(Activity {
        state: ActivityState::Attention,
        source: Source::Hook,
        since: now,
        ask: Some(first.clone()),
        detail: (!more.is_empty()).then(|| format!("it asks more: {}", more.join(", "))),
        limited_until: None,
        tag: before.tag,
    })
}

/// Requests that were open and are not, and that nobody answered from here.
pub(super) fn answered(
    session: SessionId,
    (open, after): (&[Ask], &[Ask]),
    hook: &Hook,
) -> impl Iterator<Item = Event> {
    let over = open.iter().filter(|ask| ask.answerable && !after.iter().any(|left| left.id == ask.id));
    let allowed = matches!(hook.signal, HookEvent::ToolUsed(_));
    let event = move |ask: &Ask| {
        let by = "the terminal".to_owned();
        Event::Agent(AgentEvent::AskAnswered { session, ask: ask.id, allowed, by })
    };
    over.map(event)
}

/// After a start of the daemon no hook waits for it any more: what is asked is answered at the terminal.
#[must_use]
pub fn unanswerable(pool: &Pool) -> Vec<Event> {
    let asked = pool.sessions().filter_map(|session| {
        let before = pool.activity(session.id)?;
        let ask = before.ask.clone().filter(|ask| ask.answerable)?;
        let activity = Activity { ask: Some(Ask { answerable: false, ..ask }), ..before.clone() };
        Some(Event::Agent(AgentEvent::ActivityChanged { session: session.id, activity, turned: true }))
    });
    asked.collect()
}
