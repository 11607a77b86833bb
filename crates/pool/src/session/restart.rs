//! `restart`, and the next incarnation of a session.

use protocol::session::Conversation;
use protocol::{Event, Incarnation, Lifecycle, Reason, Session, Tag, Timestamp};

use crate::session::conversation::forget_conversation;
use crate::session::lifecycle::{begin_end, is_restarting};

/// Decides on `restart`: a running incarnation ends first. Returns no event if nothing runs, or it ends for a
/// restart already.
#[must_use]
pub fn restart(session: &Session) -> Vec<Event> {
    let under_way = session.lifecycle == Lifecycle::Draining && session.reason == Some(Reason::Restarted);
    if session.lifecycle.holds_slot() && !under_way {
        return vec![begin_end(session, Reason::Restarted)];
    }
    Vec::new()
}

/// As [`restart`], and the next incarnation begins a new conversation, however it is started. The conversation of a
/// session that does not run is kept here: its start, which may be refused, replaces it.
#[must_use]
pub fn restart_fresh(session: &Session) -> Vec<Event> {
    let starts = session.lifecycle.holds_slot() || is_restarting(session);
    let forgotten = starts.then(|| forget_conversation(session)).into_iter().flatten();
    restart(session).into_iter().chain(forgotten).collect()
}

/// Inputs to the next incarnation.
#[derive(Debug, Clone, Copy)]
pub struct NextRun<'a> {
    /// A fresh random tag.
    pub tag: Tag,
    pub now: Timestamp,
    /// The id of a new conversation, if one begins.
    pub conversation: &'a str,
    /// True if the last conversation is not to be resumed.
    pub fresh: bool,
}

/// Starts the next incarnation of a session whose last one is proved gone.
#[must_use]
pub fn next_incarnation(session: &Session, next: NextRun<'_>) -> Vec<Event> {
    let mut events = Vec::new();
    if let Some(last) = &session.incarnation {
        events.push(Event::TagRetired { tag: last.tag, session: session.id });
    }
    let had = session.conversation.is_some();
    // A conversation that the pool never prompted is not resumed: its id may be in use elsewhere.
    let begun = session.conversation.as_ref().is_some_and(|last| last.begun);
    let resumed = begun && !next.fresh;
    let fresh = (had && !resumed).then(|| Conversation { id: next.conversation.to_owned(), begun: false });
    if fresh.is_some() {
        events.push(Event::ConversationChanged { session: session.id, conversation: fresh });
    }
    let restarts = session.restarts + u32::from(session.lifecycle != Lifecycle::Starting);
    events.push(Event::SessionStarting {
        session: session.id,
        incarnation: Incarnation { resumed, ..Incarnation::intended(next.tag, next.now) },
        incarnations: session.incarnations.saturating_add(1),
        restarts,
    });
    events
}
