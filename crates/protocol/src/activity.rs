//! The activity of a session's agent and the source of that knowledge.

use serde::{Deserialize, Serialize};

use crate::ids::Tag;
use crate::text::OsBytes;
use crate::time::Timestamp;

/// Maximum length of [`Ask::text`], in bytes.
pub const ASK_MAX: usize = 4096;

/// The activity of the agent in a running session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    /// The state.
    pub state: ActivityState,
    /// The source from which the state was derived.
    pub source: Source,
    /// Time of the last change of the state.
    pub since: Timestamp,
    /// The question to a person, while the agent waits for its answer.
    pub ask: Option<Ask>,
    /// A sentence for people: the tool in use, or the error.
    pub detail: Option<String>,
    /// The end of the usage limit that the agent has reached.
    pub limited_until: Option<Timestamp>,
    /// The incarnation described.
    pub tag: Option<Tag>,
}

crate::names! {
    /// The states of an agent.
    #[derive(Default)]
    pub enum ActivityState {
        /// The agent waits for the next prompt.
        Idle = "idle",
        /// The agent works on a turn.
        Busy = "busy",
        /// The agent waits for a person.
        Attention = "attention",
        /// The last turn failed.
        Error = "error",
        /// No source tells the state.
        #[default]
        Unknown = "unknown",
    }
}

impl ActivityState {
    /// True if the agent is in the middle of a turn.
    pub fn is_at_work(self) -> bool {
        matches!(self, Self::Busy | Self::Attention)
    }
}

crate::names! {
    /// Sources of an activity, the most reliable first.
    #[derive(Default)]
    pub enum Source {
        /// A hook of the agent.
        Hook = "hook",
        /// The transcript that the agent writes of its conversation.
        Transcript = "transcript",
        /// Terminal sequences of the program: prompt marks (OSC 133) and the bell.
        Terminal = "terminal",
        /// The program in the foreground of the terminal.
        Process = "process",
        /// The presence or absence of terminal output.
        Output = "output",
        /// The text on the screen.
        Screen = "screen",
        /// The outcome of a message.
        Queue = "queue",
        /// No source.
        #[default]
        Nothing = "nothing",
    }
}

impl Source {
    /// True for a report of the agent itself.
    pub fn is_report(self) -> bool {
        matches!(self, Self::Hook | Self::Transcript)
    }
}

/// A question that a person has to answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Identifies the question within its session.
    #[serde(with = "crate::u64_string")]
    pub id: u64,
    /// The kind of question.
    pub kind: AskKind,
    /// The question, at most [`ASK_MAX`] bytes; one that is cut says so at its end. Questions that `approve` can
    /// answer have one line each.
    pub text: String,
    /// The tool that needs a permission, for [`AskKind::Permission`].
    pub tool: Option<String>,
    /// True if `approve` can answer it, because the agent's hook waits for the answer.
    pub answerable: bool,
}

impl Ask {
    /// True for a request for a permission that `approve` cannot answer: only a person at the agent's terminal can.
    pub fn is_left_to_terminal(&self) -> bool {
        self.kind == AskKind::Permission && !self.answerable
    }
}

crate::names! {
    /// The kinds of questions.
    pub enum AskKind {
        /// Permission to use a tool.
        Permission = "permission",
        /// A question that the agent asks in the course of its work.
        Question = "question",
        /// A dialog at the agent's start, such as trust in the directory, or a login.
        Dialog = "dialog",
        /// The terminal's bell.
        Bell = "bell",
        /// A message in doubt, to be settled with `queue resolve`.
        Message = "message",
    }
}

/// Facts about an agent besides its activity.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notes {
    /// The incarnation whose hooks have reported.
    pub hooked: Option<Tag>,
    /// Start time of the newest hook.
    pub heard_at: Option<Timestamp>,
    /// Path of the transcript that the agent writes of its conversation.
    pub transcript: Option<OsBytes>,
    /// Number of tokens in the conversation, if known.
    pub tokens: Option<u64>,
    /// The skill that was last requested or used.
    pub skill: Option<String>,
    /// Number of resumptions after a usage limit since the last completed turn.
    pub resumes: u32,
}
