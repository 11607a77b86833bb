//! Parses the payload of a hook: the JSON that the agent passes to it. All words of the agents' hooks (names
//! of events, sources, notices and tools) are translated here into [`HookEvent`]s.
//!
//! `fields` reads the JSON, with `repair_json` if it is malformed; one module per agent translates it;
//! `tool_use` describes what a tool does; `limit_reset`, `outage` and `skill` interpret texts in it.
//!
//! Any other program can report in a generic form, one JSON object:
//!
//! ```json
//! {"event": "prompt", "text": "what it was asked", "conversation": "optional"}
//! ```
//!
//! `event` is one of
//! - `started`: ready for prompts; `text` is `startup`, `resume`, or `clear` if another conversation begins,
//! - `prompt`: a prompt was taken; `text` is the whole prompt, by which a message is confirmed,
//! - `working` and `tool`: work in progress, and a tool that was used (`input`, `response` and `failed` if
//!   known),
//! - `permission`: a permission request for the tool in `tool`, to do `text`, or what its arguments say (`input`, if
//!   known),
//! - `attention`: the program waits for its user for another reason,
//! - `idle`, `interrupted`, `error`: the turn ended; `text` is the answer or the error,
//! - `ended`.

pub(crate) mod claude;
pub(crate) mod codex;
mod fields;
pub(crate) mod gemini;
mod generic;
mod limit_reset;
mod outage;
mod repair_json;
mod skill;
mod tool_use;

use protocol::OsBytes;
use protocol::hook::HookEvent;

use crate::adapter::Adapter;
use fields::Fields;

pub use limit_reset::limit_reset;
pub(crate) use limit_reset::rfc3339;
pub use skill::last_skill;
pub use tool_use::Operation;

/// True if an agent's error says that its user is not logged in: Claude Code 2.1.197 (`Please run /login`),
/// Codex 0.169.0 (`sign in again`).
pub fn wants_login(error: &str) -> bool {
    let error = error.to_lowercase();
    ["/login", "log in again", "sign in again", "not logged in"].iter().any(|words| error.contains(words))
}

/// True if an agent's error says that its service failed or was not reached. The prompt is not the cause, so
/// that a retry may succeed.
pub fn is_outage(adapter: Adapter, error: &str) -> bool {
    outage::is_outage(adapter, error)
}

/// The longest id of a conversation, a turn or the use of a tool, in bytes; a longer id is ignored. (The
/// agents' ids are UUIDs.)
const ID_MAX: usize = 256;

/// Claude Code's tool that asks the user questions.
pub(crate) const QUESTIONS_TOOL: &str = "AskUserQuestion";
/// Claude Code's tool that shows the user a plan to approve.
const PLAN_TOOL: &str = "ExitPlanMode";

/// True if a permission request for this tool consists of questions, each of which takes an answer.
pub fn asks_questions(tool: &str) -> bool {
    tool == QUESTIONS_TOOL
}

/// The content of a payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The agent's name of the event.
    pub event: String,
    /// The agent's id of the conversation.
    pub conversation: Option<String>,
    /// The path of the agent's record of the conversation.
    pub transcript: Option<OsBytes>,
    /// The event; none if it is not about the session's own agent.
    pub signal: Option<HookEvent>,
}

/// Parses a hook's input, or the last argument of Codex's `notify` program. None if it is not a report. Input
/// that was cut off is read up to the cut.
pub fn parse(adapter: Adapter, input: &[u8]) -> Option<Report> {
    let fields = Fields::read(input)?;
    match adapter {
        Adapter::Claude => claude::report(&fields),
        Adapter::Codex => codex::report(&fields),
        Adapter::Gemini => gemini::report(&fields),
        Adapter::Opencode | Adapter::Aider | Adapter::None => generic::report(&fields),
    }
}

/// Returns the file that a tool writes. `input` is the arguments as JSON.
pub fn written_file(tool: &str, input: &str) -> Option<String> {
    fields::written_file(tool, input)
}

/// The events of subagents that concern the session: the use of tools and permission requests. Prompts and
/// ends of turns of subagents (which Codex reports with the conversation of the session) do not.
const SUBAGENT_EVENTS: [&str; 5] =
    ["PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "SubagentStart"];

/// Reads a payload with Claude Code's names of fields, which Codex and Gemini CLI adopted.
fn report(fields: &Fields, signal: impl FnOnce(&str) -> Option<HookEvent>) -> Option<Report> {
    let event = fields.word("hook_event_name")?;
    let concerns_session = !fields.has("agent_id") || SUBAGENT_EVENTS.contains(&event.as_str());
    Some(Report {
        conversation: fields.id("session_id"),
        transcript: fields.text("transcript_path").map(OsBytes::from),
        signal: if concerns_session { signal(&event) } else { None },
        event,
    })
}
