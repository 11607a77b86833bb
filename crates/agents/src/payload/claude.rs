//! Hooks of Claude Code (2.1.197).

use protocol::hook::Signal;

use super::fields::{Fields, clip};
use super::{Report, resets};

/// The events that are asked for.
pub(crate) const EVENTS: [&str; 13] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PermissionRequest",
    "Notification",
    "Stop",
    "StopFailure",
    "SubagentStart",
    "PreCompact",
    "PostCompact",
    "SessionEnd",
];

/// Why an agent is ready again that compacted its conversation because it was told to.
const COMPACTED: &str = "compacted";

pub(super) fn report(fields: &Fields) -> Option<Report> {
    super::report(fields, |event| signal(event, fields))
}

fn signal(event: &str, fields: &Fields) -> Option<Signal> {
    let turn = || fields.id("prompt_id");
    match event {
        "UserPromptSubmit" => fields.prompt("prompt", turn()),
        "Stop" => Some(Signal::TurnOver { turn: turn(), said: fields.long("last_assistant_message") }),
        "PostToolUseFailure" => Some(fields.tool_ended("error", true)),
        "Notification" => Some(Signal::Notified {
            kind: fields.word_or_nothing("notification_type"),
            text: fields.word_or_nothing("message"),
        }),
        "StopFailure" => Some(failed(fields)),
        _ => common(event, fields),
    }
}

/// What Codex says in the same words.
pub(super) fn common(event: &str, fields: &Fields) -> Option<Signal> {
    let working = |what: &str| Some(Signal::Working { what: Some(what.to_owned()), skill: None });
    match event {
        "SessionStart" => Some(Signal::Started { source: fields.word_or_nothing("source") }),
        "PreToolUse" => Some(fields.tool_begins()),
        "PostToolUse" => Some(fields.tool_ended("tool_response", false)),
        "PermissionRequest" => Some(fields.permission()),
        "SubagentStart" => working(format!("agent {}", fields.word_or_nothing("agent_type")).trim_end()),
        "PreCompact" => working("compacts the conversation"),
        // The end of `/compact`: there is no Stop. (A SessionStart of the source `compact` may be in the middle of a turn.)
        "PostCompact" if fields.text("trigger") == Some("manual") => {
            Some(Signal::Started { source: COMPACTED.to_owned() })
        }
        "PostCompact" => working("compacted the conversation"),
        "SessionEnd" => Some(Signal::Ended { reason: fields.word_or_nothing("reason") }),
        // A subagent may end after the turn that began it: that says nothing about the turn.
        _ => None,
    }
}

/// A turn that failed: `error` is a word (`rate_limit`, `overloaded`, …), the last message a sentence.
pub(super) fn failed(fields: &Fields) -> Signal {
    let word = fields.word_or_nothing("error");
    let said = fields.text("last_assistant_message").or_else(|| fields.text("error_details"));
    let error = match said {
        Some(said) if word.is_empty() => said.to_owned(),
        Some(said) => format!("{word}: {said}"),
        None => word.clone(),
    };
    let limited = word == "rate_limit" || resets::is_limit(&error);
    let until = resets::stamp(&error).filter(|_| limited);
    Signal::TurnFailed { error: clip(&error, protocol::activity::ASK_MAX), limited, until }
}
