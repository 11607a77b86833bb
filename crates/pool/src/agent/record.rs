//! The durable facts about agents, and the fold of the events about them.

use std::collections::BTreeMap;

use protocol::thought::Thought;
use protocol::{Activity, AgentEvent, Event, Notes, SessionId};

/// The facts about all agents. Each fact is a row of its table, and an unknown one has no row.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AgentRecords {
    pub(super) activities: BTreeMap<SessionId, Activity>,
    pub(super) notes: BTreeMap<SessionId, Notes>,
    pub(super) thoughts: BTreeMap<SessionId, Thought>,
    /// The last conversation that a session's agent could not resume.
    pub(super) lost: BTreeMap<SessionId, String>,
}

impl AgentRecords {
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

    /// Forgets everything about a deleted session's agent.
    pub(crate) fn session_deleted(&mut self, session: SessionId) {
        self.activities.remove(&session);
        self.notes.remove(&session);
        self.thoughts.remove(&session);
        self.lost.remove(&session);
    }

    /// All facts as events.
    pub(crate) fn replicate(&self) -> impl Iterator<Item = Event> + '_ {
        let activities = self.activities.iter().map(|(session, activity)| AgentEvent::ActivityChanged {
            session: *session,
            activity: activity.clone(),
            turned: true,
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
