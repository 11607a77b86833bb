//! What an agent's hook reports. The same types are in the files that hooks leave while no daemon answers, as JSON:
//! there, what a reader does not know is ignored, and what is missing has a default.

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, Tag};
use crate::text::OsBytes;
use crate::time::Timestamp;

/// The version of the files.
pub const SPOOL_VERSION: u32 = 1;
/// The directory of the files, in a session's own.
pub const SPOOL_DIR: &str = "hooks";
/// The longest text in a report, in bytes; a prompt may be as long as a body and what is escaped in it.
pub const TEXT_MAX: usize = 64 * 1024;
/// The longest prompt in a report, in bytes.
pub const PROMPT_MAX: usize = 300 * 1024;

/// A file that a hook left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spooled {
    /// [`SPOOL_VERSION`].
    pub version: u32,
    /// What it said.
    pub hook: Hook,
}

/// What a hook says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// The session it runs in (`POOL_SESSION`).
    pub session: SessionId,
    /// The incarnation it runs in (`POOL_INCARNATION`): reports of earlier ones are ignored.
    pub tag: Tag,
    /// Random: the same report is taken in once.
    #[serde(with = "crate::wide")]
    pub id: u64,
    /// When the hook began, by the machine's clock.
    pub at: Timestamp,
    /// The agent kind whose hook it is.
    pub agent: String,
    /// The agent's conversation.
    pub conversation: Option<String>,
    /// The agent's own record of it.
    pub transcript: Option<OsBytes>,
    /// What happened.
    pub signal: Signal,
}

/// What happened in an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A conversation begins or goes on: the agent is ready for a prompt.
    Started {
        /// Why: `startup`, `resume`, `clear`, `compact`.
        source: String,
    },
    /// It took a prompt.
    Prompt {
        /// The whole text, at most [`PROMPT_MAX`] bytes.
        text: String,
        /// Whether the text was longer.
        cut: bool,
        /// The turn it begins or joins, where the agent tells.
        turn: Option<String>,
    },
    /// It works: it uses a tool, or does something else that takes time.
    Working {
        /// With what, for people.
        what: Option<String>,
        /// The skill that this is.
        skill: Option<String>,
    },
    /// It used a tool.
    ToolUsed(Box<ToolUse>),
    /// It asks for a permission. The answer may take as long as the hook waits.
    Permission {
        /// For which tool.
        tool: String,
        /// What it would do, for people: a command, a path, or the arguments as JSON.
        text: String,
        /// How long the hook waits for an answer, in milliseconds; 0 for not at all.
        wait_ms: u64,
    },
    /// It wants to be looked at.
    Notified {
        /// What kind of notice, by the agent's own word.
        kind: String,
        /// Its text.
        text: String,
    },
    /// Its turn is over.
    TurnOver {
        /// Which, where the agent tells.
        turn: Option<String>,
        /// The last thing it said, at most [`TEXT_MAX`] bytes.
        said: Option<String>,
    },
    /// Its turn failed.
    TurnFailed {
        /// The agent's own word or sentence for it.
        error: String,
        /// It has used up what it may.
        limited: bool,
        /// Until then, where the agent tells.
        until: Option<Timestamp>,
    },
    /// Somebody interrupted its turn.
    Interrupted,
    /// The conversation is over.
    Ended {
        /// Why, by the agent's own word.
        reason: String,
    },
}

/// The use of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Its id, where the agent gives one.
    pub id: Option<String>,
    /// Which tool.
    pub tool: String,
    /// Its arguments, as JSON, at most [`TEXT_MAX`] bytes.
    pub input: String,
    /// What came of it, likewise.
    pub response: String,
    /// Whether it failed.
    pub failed: bool,
    /// Where the agent works.
    pub cwd: Option<String>,
}

/// What becomes of a request for a permission, or of questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Whether it may.
    pub allow: bool,
    /// Why not, for the agent.
    pub reason: Option<String>,
    /// Where it asks questions: the answer to each.
    pub answers: Vec<String>,
}
