//! Facts about a conversation that end with it: the size of its context, the skill in use, the thought that was
//! published about it.

use protocol::session::Conversation;
use protocol::thought::Thought;
use protocol::{AgentEvent, Event, Notes, Session, SessionId};

use crate::pool::Pool;

/// The events by which the facts about a session's conversation end, if `event` ends that conversation.
#[must_use]
pub(crate) fn end_of_facts(pool: &Pool, event: &Event) -> Vec<Event> {
    let Event::ConversationChanged { session, .. } = event else { return Vec::new() };
    match pool.session(*session) {
        Some(session) if ends_conversation(session, event) => forget(pool, session.id),
        _ => Vec::new(),
    }
}

/// True if the event replaces a conversation in which the agent was prompted, or marks it as one that cannot be
/// resumed.
pub(crate) fn ends_conversation(session: &Session, event: &Event) -> bool {
    let Event::ConversationChanged { conversation: next, .. } = event else { return false };
    let goes_on = |last: &Conversation| next.as_ref().is_some_and(|next| next.id == last.id && next.begun);
    session.conversation.as_ref().is_some_and(|last| last.begun && !goes_on(last))
}

fn forget(pool: &Pool, session: SessionId) -> Vec<Event> {
    let notes = pool.notes(session).map(|notes| {
        let notes = without_conversation(notes.clone());
        AgentEvent::AgentNoted { session, notes }
    });
    let thought = pool.thought(session).map(|thought| {
        // The stream positions stay, so that an older thought of a stream is still refused.
        let (place, other_streams) = (thought.place.clone(), thought.other_streams.clone());
        let thought = Thought { place, other_streams, ..Thought::default() };
        AgentEvent::ThoughtPublished { session, thought }
    });
    notes.into_iter().chain(thought).map(Event::Agent).collect()
}

/// Removes from the notes on an agent all that is about its conversation.
pub(crate) fn without_conversation(notes: Notes) -> Notes {
    Notes { transcript: None, tokens: None, skill: None, ..notes }
}
