//! What is remembered of sessions' agents: what they do, what else is known of them, what was published.

use std::collections::BTreeMap;

use protocol::event::AgentEvent;
use protocol::thought::Thought;
use protocol::{Activity, Event, Notes, SessionId, Tag};

use crate::pool::Pool;

/// What is remembered of all agents. A row of the table it is in where there is something.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentRecords {
    activities: BTreeMap<SessionId, Activity>,
    notes: BTreeMap<SessionId, Notes>,
    thoughts: BTreeMap<SessionId, Thought>,
    /// The conversation that an agent did not find any more, the newest of each session.
    lost: BTreeMap<SessionId, String>,
}

impl AgentRecords {
    /// Takes a fact in.
    pub(crate) fn apply(&mut self, event: &AgentEvent) {
        match event {
            AgentEvent::ActivityChanged { session, activity, .. } => {
                self.activities.insert(*session, activity.clone());
            }
            AgentEvent::AgentNoted { session, notes } => {
                self.notes.insert(*session, notes.clone());
            }
            AgentEvent::ThoughtPublished { session, thought } => {
                self.thoughts.insert(*session, thought.clone());
            }
            AgentEvent::ConversationLost { session, conversation } => {
                self.lost.insert(*session, conversation.clone());
            }
            AgentEvent::AskAnswered { .. } => {}
        }
    }

    /// The session is gone, and all that is remembered of its agent.
    pub(crate) fn dropped(&mut self, session: SessionId) {
        self.activities.remove(&session);
        self.notes.remove(&session);
        self.thoughts.remove(&session);
        self.lost.remove(&session);
    }

    /// All of it as facts.
    pub(crate) fn replicate(&self) -> impl Iterator<Item = Event> + '_ {
        let activities = self.activities.iter().map(|(session, activity)| AgentEvent::ActivityChanged {
            session: *session,
            activity: activity.clone(),
            turned: false,
        });
        let notes = self.notes.iter();
        let notes =
            notes.map(|(session, notes)| AgentEvent::AgentNoted { session: *session, notes: notes.clone() });
        let thoughts = self.thoughts.iter().map(|(session, thought)| AgentEvent::ThoughtPublished {
            session: *session,
            thought: thought.clone(),
        });
        let lost = self.lost.iter().map(|(session, conversation)| AgentEvent::ConversationLost {
            session: *session,
            conversation: conversation.clone(),
        });
        activities.chain(notes).chain(thoughts).chain(lost).map(Event::Agent)
    }
}

impl Pool {
    /// What the agent of a session does, where something is remembered of it.
    #[must_use]
    pub fn activity(&self, session: SessionId) -> Option<&Activity> {
        self.agents.activities.get(&session)
    }

    /// The same, where it is of this incarnation.
    #[must_use]
    pub fn activity_in(&self, session: SessionId, tag: Tag) -> Option<&Activity> {
        self.activity(session).filter(|activity| activity.tag == Some(tag))
    }

    /// What else is known of it.
    #[must_use]
    pub fn notes(&self, session: SessionId) -> Option<&Notes> {
        self.agents.notes.get(&session)
    }

    /// The conversation of it that its agent did not find any more: what came after began anew.
    #[must_use]
    pub fn lost_conversation(&self, session: SessionId) -> Option<&str> {
        self.agents.lost.get(&session).map(String::as_str)
    }

    /// What was last published of it.
    #[must_use]
    pub fn thought(&self, session: SessionId) -> Option<&Thought> {
        self.agents.thoughts.get(&session)
    }
}
