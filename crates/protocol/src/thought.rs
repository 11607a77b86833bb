//! Thoughts: what is published of what a session's agent is doing.

use serde::{Deserialize, Serialize};

use crate::text::SessionRef;
use crate::time::Timestamp;

/// The longest thought, in bytes.
pub const THOUGHT_MAX: usize = 4096;
/// The longest name of a stream or an objective, in bytes.
pub const FINGERPRINT_MAX: usize = 256;

/// What is published of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Thought {
    /// The thought; none where nothing was thought yet.
    pub text: Option<String>,
    /// How awake its agent is.
    pub state: ThoughtState,
    /// Where the thought comes from.
    pub source: ThoughtSource,
    /// How deep it rests; derived where the publisher says nothing.
    pub rest_state: Option<RestState>,
    /// The work looks ready to be committed.
    pub commit_candidate: bool,
    /// When the agent's objective last changed.
    pub objective_changed_at: Option<Timestamp>,
    /// What identifies the objective, by the publisher's own means.
    pub objective: Option<String>,
    /// Tokens of the conversation; 0 where that is not known.
    pub token_count: u64,
    /// How many it can keep in mind; 0 where that is not known.
    pub context_limit: u64,
    /// When it was thought.
    pub updated_at: Timestamp,
    /// Its place in the publisher's stream.
    pub place: Option<Place>,
}

/// A place in a stream of thoughts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The stream: one for each run of a publisher.
    pub stream: String,
    /// Counts from 1 within it.
    pub seq: u64,
}

/// How awake an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThoughtState {
    /// It works.
    Active,
    /// It waits.
    #[default]
    Holding,
    /// It sleeps.
    Sleeping,
}

/// Where a thought comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThoughtSource {
    /// It is the last one still.
    #[default]
    CarryForward,
    /// A model thought it.
    Llm,
    /// A fixed text for one that sleeps: kept as the last real thought, carried forward.
    StaticSleeping,
}

/// How deep a session rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestState {
    /// Not at all.
    Active,
    /// It has been idle for a moment.
    Drowsy,
    /// It sleeps.
    Sleeping,
    /// It does not run.
    DeepSleep,
}

/// `thought set`: what is not said is carried forward.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// Of which session: an id, a name, a workspace; or its pane, `%3`, or `tmux:NAME:WINDOW.PANE:%3`, which has to be
    /// in the session of that name.
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
    /// See [`Thought::objective_changed_at`]; now, where the objective is another one and nothing is said.
    pub objective_changed_at: Option<Timestamp>,
    /// See [`Thought::token_count`].
    pub token_count: Option<u64>,
    /// See [`Thought::context_limit`].
    pub context_limit: Option<u64>,
    /// When it was thought; now, where nothing is said.
    pub updated_at: Option<Timestamp>,
    /// Its place in the publisher's stream.
    pub place: Option<Place>,
}

macro_rules! words {
    ($type:ident, $what:literal, $($variant:ident = $word:literal),+) => {
        impl $type {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word for it.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|one| one.word() == word).ok_or_else(|| {
                    let all: Vec<&str> = Self::ALL.iter().map(|one| one.word()).collect();
                    format!("a {} is one of {}", $what, all.join(", "))
                })
            }
        }
    };
}

words!(ThoughtState, "state", Active = "active", Holding = "holding", Sleeping = "sleeping");
words!(
    ThoughtSource,
    "source",
    CarryForward = "carry_forward",
    Llm = "llm",
    StaticSleeping = "static_sleeping"
);
words!(
    RestState,
    "rest state",
    Active = "active",
    Drowsy = "drowsy",
    Sleeping = "sleeping",
    DeepSleep = "deep_sleep"
);
