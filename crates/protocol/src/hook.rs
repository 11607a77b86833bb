//! Reports of agents' hooks. While no daemon answers, hooks spool the same types as JSON files; their reader
//! ignores unknown fields and uses defaults for missing ones.

use serde::{Deserialize, Serialize};

use crate::ids::{SessionId, Tag};
use crate::text::OsBytes;
use crate::time::Timestamp;

/// The version of the spool files.
pub const SPOOL_VERSION: u32 = 1;
/// The directory of the spool files, within the session's directory.
pub const SPOOL_DIR: &str = "hooks";
/// Maximum length of a text in a report other than a prompt, in bytes.
pub const TEXT_MAX: usize = 64 * 1024;
/// Maximum length of a prompt in a report, in bytes: a message body with some characters escaped.
pub const PROMPT_MAX: usize = 300 * 1024;

/// A spool file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpooledHook {
    /// [`SPOOL_VERSION`].
    pub version: u32,
    /// The report.
    pub hook: Hook,
}

/// The report of a hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hook {
    /// The session in which the hook runs (`POOL_SESSION`).
    pub session: SessionId,
    /// The incarnation in which the hook runs (`POOL_INCARNATION`). Reports of earlier incarnations are
    /// ignored.
    pub tag: Tag,
    /// A random id: a report is processed once.
    #[serde(with = "crate::u64_string")]
    pub id: u64,
    /// The start time of the hook, by the machine's clock. A spooled report has a later one if its clock was set back
    /// since the report before it; `poold` corrects it by `awake`.
    pub at: Timestamp,
    /// The start time of the hook, however the clock is set.
    #[serde(default)]
    pub awake: Option<AwakeTime>,
    /// The kind of the agent.
    pub agent: String,
    /// The id of the agent's conversation.
    pub conversation: Option<String>,
    /// Path of the transcript that the agent writes of its conversation.
    pub transcript: Option<OsBytes>,
    /// The event reported.
    pub signal: HookEvent,
}

/// A time as all processes of one boot of the machine know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwakeTime {
    /// The boot.
    pub boot: String,
    /// Time since the boot without time asleep, in milliseconds.
    pub ms: u64,
}

/// An event in an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    /// A conversation begins or goes on.
    Started {
        /// The reason.
        source: Start,
    },
    /// The agent accepted a prompt.
    Prompt {
        /// The whole text, at most [`PROMPT_MAX`] bytes.
        text: String,
        /// True if the text was longer and is truncated.
        cut: bool,
        /// The turn that the prompt begins or joins, if the agent tells.
        turn: Option<String>,
    },
    /// The agent works: it uses a tool, or does something else that takes time.
    Working {
        /// A description of the work for people.
        what: Option<String>,
        /// The skill in use.
        skill: Option<String>,
    },
    /// The agent used a tool.
    ToolUsed(Box<ToolUse>),
    /// The agent asks for a permission. The answer may take as long as the hook waits.
    Permission {
        /// The tool that needs the permission.
        tool: String,
        /// A description of the use for people: a command, a path, or the arguments as JSON.
        text: String,
        /// The time that the hook waits for an answer, in milliseconds; 0 if it does not wait.
        wait_ms: u64,
    },
    /// The agent notifies its user.
    Notified {
        /// The kind of the notice.
        kind: Notice,
        /// The text of the notice.
        text: String,
    },
    /// The agent's turn ended.
    TurnOver {
        /// The turn, if the agent tells.
        turn: Option<String>,
        /// The agent's last statement, at most [`TEXT_MAX`] bytes.
        said: Option<String>,
    },
    /// The agent's turn failed.
    TurnFailed {
        /// The agent's description of the error.
        error: String,
        /// True if the agent has reached a usage limit.
        limited: bool,
        /// The end of the usage limit, if the agent tells.
        until: Option<Timestamp>,
    },
    /// The user interrupted the agent's turn.
    Interrupted,
    /// The conversation ended.
    Ended {
        /// The reason in the agent's words.
        reason: String,
    },
    /// A tool shows its user a dialog (a question, a plan to approve) that is answered in the terminal.
    Asking {
        /// The tool's name.
        tool: String,
        /// The plan that the dialog shows, at most [`TEXT_MAX`] bytes.
        #[serde(default)]
        plan: Option<String>,
    },
}

/// The reason why a conversation begins or goes on. After all but [`Start::Compacted`] the agent is ready
/// for a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// The agent's process began, with a new conversation.
    New,
    /// The agent resumed an earlier conversation.
    Resumed,
    /// A command of the agent began another conversation.
    Cleared,
    /// The conversation was compacted, possibly in the middle of a turn.
    Compacted,
    /// The conversation was compacted by a command of the user, which is a turn of its own.
    CompactedOnCommand,
    /// An unknown reason.
    Other,
}

/// The kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// The agent has been waiting for a prompt for a while (a minute, as measured with Claude Code).
    Idle,
    /// The agent waits for a permission.
    Permission,
    /// The agent waits for its user for another reason.
    Question,
    /// The user logged in.
    LoggedIn,
}

/// The use of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolUse {
    /// The id of the use, if the agent assigns one.
    pub id: Option<String>,
    /// The tool.
    pub tool: String,
    /// The arguments as JSON, at most [`TEXT_MAX`] bytes.
    pub input: String,
    /// The result as JSON, at most [`TEXT_MAX`] bytes.
    pub response: String,
    /// True if the tool failed.
    pub failed: bool,
    /// The working directory of the agent.
    pub cwd: Option<String>,
}

/// The decision on a permission request or on questions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// True if the permission is granted.
    pub allow: bool,
    /// The reason for a denial, for the agent.
    pub reason: Option<String>,
    /// One answer for each question.
    pub answers: Vec<String>,
}
