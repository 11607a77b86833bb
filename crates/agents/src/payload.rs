//! What an agent's hook says, read from the JSON that the agent hands to it.
//!
//! Any other program can report in a form of our own, one JSON object:
//!
//! ```json
//! {"event": "prompt", "text": "what it was asked", "conversation": "optional"}
//! ```
//!
//! `event` is one of
//! - `started`: it is ready for prompts; `text`: `startup`, `resume`, or `clear` where another conversation begins,
//! - `prompt`: it took one; `text` is the whole prompt, by which a message is confirmed,
//! - `working` and `tool`: what it does, and which tool it has used (`input`, `response` and `failed` where they are known),
//! - `permission`: it asks for one for the tool in `tool`, to do `text`,
//! - `attention`: it waits for its user for another reason,
//! - `idle`, `interrupted`, `error`: how its turn ended; `text` is its answer, or the error,
//! - `ended`.

pub(crate) mod claude;
pub(crate) mod codex;
mod fields;
pub(crate) mod gemini;
mod generic;
mod mend;
mod outage;
mod resets;
mod skill;

use protocol::hook::Signal;
use protocol::text::OsBytes;

use crate::kind::Adapter;
use fields::Fields;

pub use resets::resets;
pub use skill::last_skill;

/// Finds in an agent's error that its user is not logged in: Claude Code 2.1.197 (`Please run /login`), Codex 0.169.0
/// (`sign in again`).
#[must_use]
pub fn wants_login(error: &str) -> bool {
    let error = error.to_lowercase();
    ["/login", "log in again", "sign in again", "not logged in"].iter().any(|words| error.contains(words))
}

/// Finds in an agent's error that the service failed or was not reached, which says nothing of the prompt: another try may
/// succeed.
#[must_use]
pub fn is_outage(adapter: Adapter, error: &str) -> bool {
    outage::is_outage(adapter, error)
}

/// The longest id of a conversation or turn that is believed, in bytes (both agents' are UUIDs).
pub const ID_MAX: usize = 256;

/// The tool by which Claude Code asks its user questions of its own.
pub const QUESTIONS_TOOL: &str = "AskUserQuestion";

/// What a hook says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The agent's own name of the event.
    pub event: String,
    /// The agent's conversation.
    pub conversation: Option<String>,
    /// The agent's own record of it.
    pub transcript: Option<OsBytes>,
    /// What it means; none where it tells nothing about the agent of the session.
    pub signal: Option<Signal>,
}

/// The report in a hook's input (for Codex also: in the last argument of its `notify` program). None where it is not one.
/// Input that was cut off is read as far as it goes.
#[must_use]
pub fn parse(adapter: Adapter, input: &[u8]) -> Option<Report> {
    let fields = Fields::read(input)?;
    match adapter {
        Adapter::Claude => claude::report(&fields),
        Adapter::Codex => codex::report(&fields),
        Adapter::Gemini => gemini::report(&fields),
        Adapter::Opencode | Adapter::Aider | Adapter::None => generic::report(&fields),
    }
}

/// What the use of a tool does, by its arguments as JSON, in the words in which its permission was asked for. None where no
/// argument tells.
#[must_use]
pub fn does(input: &str) -> Option<String> {
    fields::does(input)
}

/// What of a subagent concerns the session: the tools it uses and the permissions it asks for. Its prompts and the ends of
/// its turns (Codex reports them with the conversation of the session) are not the session's.
const OF_SUBAGENTS: [&str; 5] =
    ["PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "SubagentStart"];

/// The report of an agent that names its fields as Claude Code does (Codex and Gemini CLI took the names over).
fn report(fields: &Fields, signal: impl FnOnce(&str) -> Option<Signal>) -> Option<Report> {
    let event = fields.word("hook_event_name")?;
    let ours = !fields.has("agent_id") || OF_SUBAGENTS.contains(&event.as_str());
    Some(Report {
        conversation: fields.id("session_id"),
        transcript: fields.text("transcript_path").map(OsBytes::from),
        signal: if ours { signal(&event) } else { None },
        event,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_read(input in proptest::collection::vec(any::<u8>(), 0..300)) {
            for adapter in Adapter::ALL {
                let _read = parse(adapter, &input);
            }
        }

        #[test]
        fn any_text_like_json_is_read(input in r#"[\[\]{}",:\\ua-f0-9 ]{0,80}"#) {
            for adapter in Adapter::ALL {
                let _read = parse(adapter, input.as_bytes());
            }
        }
    }
}
