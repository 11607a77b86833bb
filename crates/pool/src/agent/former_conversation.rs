//! Facts about a conversation that end with it: the size of its context, the skill in use, the thought that was
//! published about it.

use protocol::event::AgentEvent;
use protocol::session::Conversation;
use protocol::thought::Thought;
use protocol::{Event, Notes, Session, SessionId};

use crate::pool::Pool;

/// The events by which the facts about a session's conversation end, if `event` ends that conversation.
#[must_use]
pub(crate) fn end_of_facts(pool: &Pool, event: &Event) -> Vec<Event> {
    match pool.session(event.session().unwrap_or_default()) {
        Some(session) if ends_conversation(session, event) => forget(pool, session.id),
        _ => Vec::new(),
    }
}

/// True if a conversation in which the agent was prompted is replaced, or is not to be resumed.
#[must_use]
pub(crate) fn ends_conversation(session: &Session, event: &Event) -> bool {
    let Event::ConversationChanged { conversation: next, .. } = event else { return false };
    let goes_on = |last: &Conversation| next.as_ref().is_some_and(|next| next.id == last.id && next.begun);
    session.conversation.as_ref().is_some_and(|last| last.begun && !goes_on(last))
}

fn forget(pool: &Pool, session: SessionId) -> Vec<Event> {
    let notes = pool.notes(session).map(|notes| {
        let notes = of_new_conversation(notes.clone());
        AgentEvent::AgentNoted { session, notes }
    });
    let thought = pool.thought(session).map(|thought| {
        // The positions stay, so that an older thought of a stream is still refused.
        let Thought { place, other_streams, .. } = thought.clone();
        let thought = Thought { place, other_streams, ..Thought::default() };
        AgentEvent::ThoughtPublished { session, thought }
    });
    notes.into_iter().chain(thought).map(Event::Agent).collect()
}

/// What stays known of an agent in another conversation.
#[must_use]
pub(crate) fn of_new_conversation(notes: Notes) -> Notes {
    Notes { transcript: None, tokens: None, skill: None, ..notes }
}
