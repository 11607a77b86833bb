//! Events about agents.

use serde::{Deserialize, Serialize};

use crate::activity::{Activity, Notes};
use crate::event_kind::EventKind;
use crate::ids::SessionId;
use crate::thought::Thought;

/// A fact about a session's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentEvent {
    /// The agent's activity changed, or its source did. In the journal only if the activity itself changed.
    ActivityChanged {
        /// The session.
        session: SessionId,
        /// The whole new activity.
        activity: Activity,
        /// True if the activity itself changed, not only its source or details.
        turned: bool,
    },
    /// The facts about the agent changed. Never in the journal.
    AgentNoted {
        /// The session.
        session: SessionId,
        /// All facts about the agent.
        notes: Notes,
    },
    /// A thought was published.
    ThoughtPublished {
        /// The session.
        session: SessionId,
        /// The whole thought.
        thought: Thought,
    },
    /// A permission request was answered.
    AskAnswered {
        /// The session.
        session: SessionId,
        /// The id of the request.
        #[serde(with = "crate::u64_string")]
        ask: u64,
        /// True if the permission was granted.
        allowed: bool,
        /// The decider: `approve`, or a note that the decision was left to the terminal.
        by: String,
    },
    /// The agent could not resume its conversation because it no longer exists, and begins a new one.
    ConversationLost {
        /// The session.
        session: SessionId,
        /// The id of the lost conversation.
        conversation: String,
    },
}

impl AgentEvent {
    /// Returns the event kind that users see.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::ActivityChanged { .. } => EventKind::ActivityChanged,
            Self::AgentNoted { .. } => EventKind::AgentNoted,
            Self::ThoughtPublished { .. } => EventKind::ThoughtPublished,
            Self::AskAnswered { .. } => EventKind::AskAnswered,
            Self::ConversationLost { .. } => EventKind::ConversationLost,
        }
    }

    /// Returns the session concerned.
    pub fn session(&self) -> SessionId {
        match self {
            Self::ActivityChanged { session, .. }
            | Self::AgentNoted { session, .. }
            | Self::ThoughtPublished { session, .. }
            | Self::AskAnswered { session, .. }
            | Self::ConversationLost { session, .. } => *session,
        }
    }

    /// True if the event is kept in the journal and published.
    pub fn is_journaled(&self) -> bool {
        self.kind().is_published() && !matches!(self, Self::ActivityChanged { turned: false, .. })
    }
}
