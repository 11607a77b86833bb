//! The open questions of an agent. An agent with several tools at work may ask several at once; they are
//! shown one at a time, the oldest first.

use std::collections::BTreeMap;

use agents::payload::Operation;
use protocol::bounds::{LIST_MAX, cut_question};
use protocol::hook::{Hook, HookEvent, Notice, Start, ToolUse};
use protocol::request::Approve;
use protocol::{
    Activity, ActivityState, AgentEvent, Ask, AskKind, Event, Refusal, SessionId, Source, Timestamp,
};

use crate::clock::Moment;
use crate::pool::Pool;

/// All open questions: the one that is shown, then the `queued` ones.
pub fn open_asks(shown: &Activity, queued: &[Ask]) -> Vec<Ask> {
    let first = shown.ask.iter().filter(|ask| ask.kind != AskKind::Bell);
    // If no question is shown, those that were queued behind it have ended with it.
    let queued = if shown.ask.is_some() { queued } else { &[] };
    first.chain(queued).cloned().collect()
}

/// Returns the open questions after a hook report, the oldest first. `asked_at` has the moments at which the earlier
/// ones were asked.
pub(crate) fn asks_after(
    open: &[Ask],
    (hook, moment): (&Hook, Moment),
    asked_at: Option<&BTreeMap<u64, Moment>>,
) -> Vec<Ask> {
    let mut open = open.to_vec();
    let ask = |kind, text: &str, tool: Option<&str>, answerable| {
        let (text, tool) = (cut_question(text), tool.map(str::to_owned));
        Ask { id: hook.id, kind, text, tool, answerable }
    };
    match &hook.signal {
        HookEvent::Permission { tool, text, wait_ms } => {
            // An earlier request is kept only if its hook waits: any other one may have been answered at the terminal.
            open.retain(|ask| ask.answerable && ask.id != hook.id);
            let questions = agents::payload::asks_questions(tool);
            let kind = if questions { AskKind::Question } else { AskKind::Permission };
            // Questions without a text could not be parsed, and cannot be answered from here.
            let answerable = *wait_ms > 0 && (kind == AskKind::Permission || !text.is_empty());
            open.push(ask(kind, text, Some(tool), answerable));
            // After a restart of `poold`, the waiting hooks report their requests again, in any order.
            let moment_of = |ask: &Ask| match ask.id {
                id if id == hook.id => Some(moment),
                id => asked_at?.get(&id).copied(),
            };
            open.sort_by_key(moment_of);
        }
        HookEvent::Asking { tool, plan: _ } => {
            open.retain(|ask| ask.answerable);
            open.push(ask(AskKind::Question, tool, Some(tool), false));
        }
        HookEvent::ToolUsed(used) => {
            open.retain(|ask| ask.tool.is_some());
            if let Some(at) = request_for(&open, used) {
                open.remove(at);
            }
        }
        HookEvent::Notified { kind: kind @ (Notice::Permission | Notice::Question), text } => {
            let permission = *kind == Notice::Permission;
            let kind = if permission { AskKind::Permission } else { AskKind::Question };
            // If a question is open already, the notice is about that one.
            if open.is_empty() {
                open.push(ask(kind, text, None, false));
            }
        }
        HookEvent::Started { source: Start::Compacted }
        | HookEvent::Notified { kind: Notice::LoggedIn, .. } => {}
        // Other work does not answer a question about a tool.
        HookEvent::Working { .. } => open.retain(|ask| ask.tool.is_some()),
        // The turn with the questions is over, or was not continued.
        HookEvent::Started {
            source: Start::New | Start::Resumed | Start::Cleared | Start::CompactedOnCommand | Start::Other,
        }
        | HookEvent::Prompt { .. }
        | HookEvent::Notified { kind: Notice::Idle, .. }
        | HookEvent::TurnOver { .. }
        | HookEvent::TurnFailed { .. }
        | HookEvent::Interrupted
        | HookEvent::Ended { .. } => open.clear(),
    }
    // Bounds questions that an agent never withdrew.
    let excess = open.len().saturating_sub(LIST_MAX);
    open.drain(..excess);
    open
}

/// Returns the place of the request for this use of a tool. Other uses of the same tool may run beside it: a request
/// with the same arguments comes before one that only resembles it.
fn request_for(open: &[Ask], used: &ToolUse) -> Option<usize> {
    let asked: Vec<usize> =
        (0..open.len()).filter(|at| open[*at].tool.as_ref() == Some(&used.tool)).collect();
    if asked.is_empty() {
        return None;
    }
    let operation = Operation::read(&used.input);
    let is_question = |at: &usize| open[*at].kind != AskKind::Permission;
    let is_same = |at: &usize| is_question(at) || operation.is_asked_by(&open[*at].text);
    let may_be = |at: &usize| operation.resembles(&open[*at].text);
    let same = asked.iter().copied().find(is_same);
    same.or_else(|| asked.iter().copied().find(may_be))
}

/// Checks that an answer fits the question.
///
/// # Errors
/// Conflict, with the right form of answer: texts for questions, yes or no for a permission.
pub fn check_answer(ask: &Ask, said: &Approve, name: &str) -> Result<(), Refusal> {
    let conflict = |why: String| Err(Refusal::conflict(why));
    let questions = if ask.kind == AskKind::Question { ask.text.lines().count() } else { 0 };
    match (said.deny, questions, said.answers.len()) {
        (true, _, 0) => Ok(()),
        (true, ..) => conflict("it was both answered and denied: give either --answer or --deny".to_owned()),
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

/// The activity of an agent with these open questions; none without any.
pub fn ask_activity(before: &Activity, open: &[Ask], now: Timestamp) -> Option<Activity> {
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

/// Reports the requests that are over without an answer from `approve`.
pub(crate) fn answered_elsewhere(
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

/// Marks all questions as answerable only at the terminal, after a start of the daemon: no hook waits for an answer any
/// more.
#[must_use]
pub fn mark_asks_unanswerable(pool: &Pool) -> Vec<Event> {
    let asked = pool.sessions().filter_map(|session| {
        let before = pool.activity(session.id)?;
        let ask = before.ask.clone().filter(|ask| ask.answerable)?;
        let activity = Activity { ask: Some(Ask { answerable: false, ..ask }), ..before.clone() };
        Some(Event::Agent(AgentEvent::ActivityChanged { session: session.id, activity, turned: true }))
    });
    asked.collect()
}
