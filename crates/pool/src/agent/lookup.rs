//! Look-ups of agents in the state.

use protocol::thought::Thought;
use protocol::{Activity, Notes, SessionId, Tag};

use crate::pool::Pool;

impl Pool {
    /// The last known activity of a session's agent.
    pub fn activity(&self, session: SessionId) -> Option<&Activity> {
        self.agents.activities.get(&session)
    }

    /// The same, if it belongs to this incarnation.
    pub fn activity_in(&self, session: SessionId, tag: Tag) -> Option<&Activity> {
        self.activity(session).filter(|activity| activity.tag == Some(tag))
    }

    /// Further facts about a session's agent.
    pub fn notes(&self, session: SessionId) -> Option<&Notes> {
        self.agents.notes.get(&session)
    }

    /// The last conversation that a session's agent could not resume; it began a new one.
    pub fn lost_conversation(&self, session: SessionId) -> Option<&str> {
        self.agents.lost.get(&session).map(String::as_str)
    }

    /// The last thought published for a session.
    pub fn thought(&self, session: SessionId) -> Option<&Thought> {
        self.agents.thoughts.get(&session)
    }
}
