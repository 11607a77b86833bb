//! Hooks of Gemini CLI (0.61.0).

use protocol::hook::{HookEvent, Notice};

use super::fields::Fields;
use super::{Report, claude};

/// The events that get a hook.
pub(crate) const EVENTS: [&str; 7] =
    ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "Notification", "SessionEnd"];

/// The response of a turn that ended without an answer: interrupted or failed, which only the transcript
/// tells.
const NO_ANSWER: &str = "[no response text]";

pub(super) fn report(fields: &Fields) -> Option<Report> {
    super::report(fields, |event| signal(event, fields))
}

fn signal(event: &str, fields: &Fields) -> Option<HookEvent> {
    match event {
        "SessionStart" => {
            Some(HookEvent::Started { source: claude::start(fields.text("source").unwrap_or_default()) })
        }
        "BeforeAgent" => fields.prompt("prompt", None),
        "BeforeTool" => Some(fields.tool_begins()),
        "AfterTool" => Some(fields.tool_ended("tool_response", fields.failed_within("tool_response"))),
        "AfterAgent" if fields.text("prompt_response") == Some(NO_ANSWER) => None,
        "AfterAgent" => Some(HookEvent::TurnOver { turn: None, said: fields.long("prompt_response") }),
        // A hook can only observe these; the user answers in the terminal.
        "Notification" => {
            let permission = fields.text("notification_type") == Some("ToolPermission");
            let kind = if permission { Notice::Permission } else { Notice::Question };
            Some(HookEvent::Notified { kind, text: fields.question("message") })
        }
        "SessionEnd" => Some(HookEvent::Ended { reason: fields.word_or_default("reason") }),
        // PreCompress is ignored: as no event marks its end, the agent would stay busy.
        _ => None,
    }
}
