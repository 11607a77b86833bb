//! What a session's agent is doing, and how that is known.

mod rest;

use serde::{Deserialize, Serialize};

use crate::ids::Tag;
use crate::text::OsBytes;
use crate::time::Timestamp;

pub use rest::DROWSY_AFTER_MS;

/// The longest text of what is asked of a person, in bytes.
pub const ASK_MAX: usize = 4096;

/// What the agent of a running session is doing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    /// What it is.
    pub state: ActivityState,
    /// How that is known.
    pub source: Source,
    /// Since when it is so.
    pub since: Timestamp,
    /// What is asked of a person, while that is what it waits for.
    pub ask: Option<Ask>,
    /// A sentence for people: the tool it runs, the error it met.
    pub detail: Option<String>,
    /// It has used up what it may, until then.
    pub limited_until: Option<Timestamp>,
    /// The incarnation that this is about.
    pub tag: Option<Tag>,
}

/// What an agent can be doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityState {
    /// Waits for the next prompt.
    Idle,
    /// Works.
    Busy,
    /// Waits for a person.
    Attention,
    /// Its last turn failed.
    Error,
    /// Nothing tells.
    #[default]
    Unknown,
}

impl ActivityState {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Idle, Self::Busy, Self::Attention, Self::Error, Self::Unknown];

    /// Whether it is in the middle of a turn.
    #[must_use]
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Busy | Self::Attention)
    }

    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Attention => "attention",
            Self::Error => "error",
            Self::Unknown => "unknown",
        }
    }
}

/// How an activity is known, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The agent's own hook said so.
    Hook,
    /// The agent's own record of the conversation.
    Transcript,
    /// What the program tells the terminal: marks of prompts (OSC 133), the bell.
    Terminal,
    /// What runs in the foreground of the terminal.
    Process,
    /// Whether it writes.
    Output,
    /// How the screen looks.
    Screen,
    /// What became of a message.
    Queue,
    /// Nothing.
    #[default]
    Nothing,
}

impl Source {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Hook => "hook",
            Self::Transcript => "transcript",
            Self::Terminal => "terminal",
            Self::Process => "process",
            Self::Output => "output",
            Self::Screen => "screen",
            Self::Queue => "queue",
            Self::Nothing => "nothing",
        }
    }
}

/// What is asked of a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Tells it from every other of its session.
    #[serde(with = "crate::wide")]
    pub id: u64,
    /// What kind of thing.
    pub kind: AskKind,
    /// What exactly, at most [`ASK_MAX`] bytes. Of questions that can be answered, a line each.
    pub text: String,
    /// The tool that it wants to use, where it asks for a permission.
    pub tool: Option<String>,
    /// Whether `approve` can answer it: the agent's hook waits for that.
    pub answerable: bool,
}

/// What kind of thing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskKind {
    /// May it use a tool?
    Permission,
    /// A question of the agent's own.
    Question,
    /// A dialog at the start: trust this directory, log in, …
    Dialog,
    /// It rang the bell.
    Bell,
    /// What became of a message is not known: `queue resolve`.
    Message,
}

impl AskKind {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Permission => "permission",
            Self::Question => "question",
            Self::Dialog => "dialog",
            Self::Bell => "bell",
            Self::Message => "message",
        }
    }
}

/// What is known of an agent beside its activity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// The incarnation whose hooks were heard.
    pub hooked: Option<Tag>,
    /// When its newest hook began.
    pub heard_at: Option<Timestamp>,
    /// The agent's own record of the conversation.
    pub transcript: Option<OsBytes>,
    /// Tokens of the conversation, where that is known.
    pub tokens: Option<u64>,
    /// The skill that was last asked for or used.
    pub skill: Option<String>,
    /// How often it was taken up again after a usage limit, since it last finished a turn.
    pub resumes: u32,
}
