//! Thoughts: published summaries of what a session's agent is doing.

use serde::{Deserialize, Serialize};

use crate::text::SessionRef;
use crate::time::Timestamp;

/// Maximum length of a thought, in bytes.
pub const THOUGHT_MAX: usize = 4096;
/// Maximum length of the name of a stream or an objective, in bytes.
pub const FINGERPRINT_MAX: usize = 256;

/// Number of streams, besides the last one, whose positions are remembered for a session.
pub const STREAMS_MAX: usize = 8;

/// The published state of a session's agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Thought {
    /// The thought; absent if none was published yet.
    pub text: Option<String>,
    /// The agent's level of activity.
    pub state: ThoughtState,
    /// The origin of the thought.
    pub source: ThoughtSource,
    /// The session's level of rest; derived if the publisher does not set it.
    pub rest_state: Option<RestState>,
    /// True if the work looks ready to be committed.
    pub commit_candidate: bool,
    /// The time of the last change of the agent's objective.
    pub objective_changed_at: Option<Timestamp>,
    /// The publisher's identifier of the objective.
    pub objective: Option<String>,
    /// Number of tokens in the conversation; 0 if unknown.
    pub token_count: u64,
    /// Size of the context window in tokens; 0 if unknown.
    pub context_limit: u64,
    /// The time of the thought; 0 if none was published in the present conversation.
    pub updated_at: Timestamp,
    /// The position in the publisher's stream.
    pub place: Option<StreamPosition>,
    /// The last positions in other streams, the newest first, at most [`STREAMS_MAX`].
    #[serde(default)]
    pub other_streams: Vec<StreamPosition>,
}

/// A position in a publisher's stream of thoughts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The stream: one for each run of a publisher.
    pub stream: String,
    /// Sequence number within the stream, from 1.
    pub seq: u64,
}

crate::names! {
    /// The activity levels of an agent.
    #[derive(Default)]
    pub enum ThoughtState {
        /// The agent works.
        Active = "active",
        /// The agent waits.
        #[default]
        Holding = "holding",
        /// The agent sleeps.
        Sleeping = "sleeping",
    }
}

crate::names! {
    /// The origins of a thought.
    #[derive(Default)]
    pub enum ThoughtSource {
        /// The previous thought, carried forward.
        #[default]
        CarryForward = "carry_forward",
        /// A language model.
        Llm = "llm",
        /// A fixed text for a sleeping agent. It is stored as the last real thought, carried forward.
        StaticSleeping = "static_sleeping",
    }
}

crate::names! {
    /// The levels of a session's rest.
    pub enum RestState {
        /// The session does not rest.
        Active = "active",
        /// The session has been idle for a moment.
        Drowsy = "drowsy",
        /// The session sleeps.
        Sleeping = "sleeping",
        /// The session does not run.
        DeepSleep = "deep_sleep",
    }
}

/// `thought set`. Absent values are carried forward.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Publish {
    /// The session: an id, a name or a workspace; or its pane as `%3`, or as `tmux:NAME:WINDOW.PANE:%3`,
    /// where the pane must be in the session of that name.
    pub target: SessionRef,
    /// The thought.
    pub text: Option<String>,
    /// See [`Thought::state`].
    pub state: Option<ThoughtState>,
    /// See [`Thought::source`].
    pub source: Option<ThoughtSource>,
    /// See [`Thought::rest_state`].
    pub rest_state: Option<RestState>,
    /// See [`Thought::commit_candidate`].
    pub commit_candidate: Option<bool>,
    /// See [`Thought::objective`].
    pub objective: Option<String>,
    /// See [`Thought::objective_changed_at`]; defaults to now if the objective changes.
    pub objective_changed_at: Option<Timestamp>,
    /// See [`Thought::token_count`].
    pub token_count: Option<u64>,
    /// See [`Thought::context_limit`].
    pub context_limit: Option<u64>,
    /// The time of the thought; defaults to now.
    pub updated_at: Option<Timestamp>,
    /// The position in the publisher's stream.
    pub place: Option<StreamPosition>,
}

impl Publish {
    /// A request that carries everything forward.
    pub fn to(target: SessionRef) -> Self {
        Self { target, ..Self::default() }
    }
}

/// Parses a name, of which the error calls its kind `what`.
macro_rules! from_name {
    ($type:ident, $what:literal) => {
        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(name: &str) -> Result<Self, String> {
                Self::of_name(name).ok_or_else(|| {
                    format!("a {} is one of {}", $what, Self::ALL.map(Self::as_str).join(", "))
                })
            }
        }
    };
}

from_name!(ThoughtState, "state");
from_name!(ThoughtSource, "source");
from_name!(RestState, "rest state");
