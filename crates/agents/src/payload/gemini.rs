//! Hooks of Gemini CLI (0.61.0).

use protocol::hook::Signal;

use super::Report;
use super::fields::Fields;

/// The events that are asked for.
pub(crate) const EVENTS: [&str; 7] =
    ["SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "Notification", "SessionEnd"];

/// The answer of a turn that was broken off before there was any: interrupted, or failed. Its record says which.
const NO_ANSWER: &str = "[no response text]";

pub(super) fn report(fields: &Fields) -> Option<Report> {
    super::report(fields, |event| signal(event, fields))
}

fn signal(event: &str, fields: &Fields) -> Option<Signal> {
    match event {
        "SessionStart" => Some(Signal::Started { source: fields.word_or_nothing("source") }),
        "BeforeAgent" => fields.prompt("prompt", None),
        "BeforeTool" => Some(fields.tool_begins()),
        "AfterTool" => Some(fields.tool_ended("tool_response", fields.failed_within("tool_response"))),
        "AfterAgent" if fields.text("prompt_response") == Some(NO_ANSWER) => None,
        "AfterAgent" => Some(Signal::TurnOver { turn: None, said: fields.long("prompt_response") }),
        // Only the user can answer these: a hook is told of them and no more.
        "Notification" if fields.text("notification_type") == Some("ToolPermission") => {
            Some(Signal::Notified {
                kind: "permission_prompt".to_owned(),
                text: fields.word_or_nothing("message"),
            })
        }
        "Notification" => Some(Signal::Notified {
            kind: fields.word_or_nothing("notification_type"),
            text: fields.word_or_nothing("message"),
        }),
        "SessionEnd" => Some(Signal::Ended { reason: fields.word_or_nothing("reason") }),
        // PreCompress has no end of its own: it must not look like work.
        _ => None,
    }
}
