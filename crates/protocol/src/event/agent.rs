//! Facts about agents.

use serde::{Deserialize, Serialize};

use crate::activity::{Activity, Notes};
use crate::ids::SessionId;
use crate::thought::Thought;

/// A fact about a session's agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentEvent {
    /// Its agent does something else, or that is known in another way. In the journal only where it is
    /// something else.
    ActivityChanged {
        /// Which session.
        session: SessionId,
        /// All of it.
        activity: Activity,
        /// Whether it is something else than before.
        turned: bool,
    },
    /// More is known of its agent. Never in the journal.
    AgentNoted {
        /// Which session.
        session: SessionId,
        /// All of it.
        notes: Notes,
    },
    /// A thought was published.
    ThoughtPublished {
        /// Which session.
        session: SessionId,
        /// All of it.
        thought: Thought,
    },
    /// A request for a permission was answered.
    AskAnswered {
        /// Which session.
        session: SessionId,
        /// Which request.
        #[serde(with = "crate::wide")]
        ask: u64,
        /// Whether it was allowed.
        allowed: bool,
        /// Who says so: `approve`, or that it was left to the terminal.
        by: String,
    },
    /// Its agent could not take up its conversation, which is not there: it begins a new one.
    ConversationLost {
        /// Which session.
        session: SessionId,
        /// The id of the conversation that is lost.
        conversation: String,
    },
}

impl AgentEvent {
    /// The word that users see.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::ActivityChanged { .. } => "activity_changed",
            Self::AgentNoted { .. } => "agent_noted",
            Self::ThoughtPublished { .. } => "thought_published",
            Self::AskAnswered { .. } => "ask_answered",
            Self::ConversationLost { .. } => "conversation_lost",
        }
    }

    /// The session it is about.
    #[must_use]
    pub fn session(&self) -> SessionId {
        match self {
            Self::ActivityChanged { session, .. }
            | Self::AgentNoted { session, .. }
            | Self::ThoughtPublished { session, .. }
            | Self::AskAnswered { session, .. }
            | Self::ConversationLost { session, .. } => *session,
        }
    }

    /// Whether it is kept in the journal and published.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        !matches!(self, Self::AgentNoted { .. } | Self::ActivityChanged { turned: false, .. })
    }
}
