//! Conversations of sessions' agents. An agent may be unable to resume one: it never wrote it, because its
//! first prompt was cut off, or it has cleaned up its record since.

use std::time::Duration;

use agents::Adapter;
use protocol::policy::Budget;
use protocol::session::Conversation;
use protocol::{ActivityState, AgentEvent, Event, Lifecycle, Reason, Session, Timestamp};

use crate::pool::Pool;
use crate::queue::settle;
use crate::settings::Settings;

/// Records that the agent was prompted, so that its conversation can be resumed. Returns no event if that is
/// on record.
#[must_use]
pub fn begin_conversation(session: &Session) -> Option<Event> {
    let begun = session.conversation.clone().filter(|last| !last.begun);
    let conversation = begun.map(|last| Conversation { begun: true, ..last });
    conversation.is_some().then_some(Event::ConversationChanged { session: session.id, conversation })
}

/// Records that an agent has begun another conversation without telling its id: the record gets a new id, under which
/// nothing can be resumed. Returns no event for an agent without conversations.
#[must_use]
pub fn replace_conversation(session: &Session, id: String) -> Option<Event> {
    let conversation = session.conversation.as_ref().map(|_| Conversation { id, begun: false });
    conversation.is_some().then_some(Event::ConversationChanged { session: session.id, conversation })
}

/// Records that the conversation is not to be resumed: the next start begins another one. Returns no event if
/// that is so.
#[must_use]
pub(crate) fn forget_conversation(session: &Session) -> Option<Event> {
    let begun = session.conversation.clone().filter(|last| last.begun);
    let conversation = begun.map(|last| Conversation { begun: false, ..last });
    conversation.is_some().then_some(Event::ConversationChanged { session: session.id, conversation })
}

/// Time within which an agent that does not find its conversation ends: a second, and longer on a loaded
/// machine.
const RESUME_FAILURE_MAX: Duration = Duration::from_secs(30);

/// True if an agent that was to resume its conversation failed soon, before it reported a start. The
/// conversation may be lost, which the agent's output and its record tell.
pub(crate) fn failed_to_resume(pool: &Pool, settings: &Settings, session: &Session) -> bool {
    let Some(run) = session.incarnation.as_ref().filter(|run| run.resumed) else { return false };
    let failed = session.exit.is_some_and(|exit| exit.code.is_some_and(|code| code != 0));
    let ended = session.lifecycle == Lifecycle::Stopped && session.reason == Some(Reason::Exited) && failed;
    // If Claude Code (2.1.197) does not find its conversation, it reports an end of the conversation, but no start.
    let spoke =
        pool.activity_in(session.id, run.tag).is_some_and(|known| known.state != ActivityState::Unknown);
    let known = settings.agent_of(session).adapter != Adapter::None;
    let begun = session.conversation.as_ref().is_some_and(|last| last.begun);
    ended && known && begun && !spoke && pool.age(session.changed_at, run.started_at) < RESUME_FAILURE_MAX
}

/// Starts a session once more, with a new conversation, because its agent has lost the last one. Its queue is
/// kept.
#[must_use]
pub(crate) fn conversation_lost(pool: &Pool, session: &Session, now: Timestamp) -> Vec<Event> {
    let Some(last) = session.conversation.clone() else { return Vec::new() };
    let told = AgentEvent::ConversationLost { session: session.id, conversation: last.id.clone() };
    // `begun: false` marks a conversation without a prompt, which is not resumed.
    let conversation = Some(Conversation { begun: false, ..last });
    let budget = Budget { due_at: Some(now), ..session.budget.clone() };
    let changes = [
        Event::Agent(told),
        Event::ConversationChanged { session: session.id, conversation },
        Event::BudgetChanged { session: session.id, budget },
    ];
    changes.into_iter().chain(settle::restart_suspended(pool, session.id, now)).collect()
}
