//! Hooks of Claude Code (2.1.197).

use protocol::hook::{HookEvent, Notice, Start};

use super::fields::{Fields, clip};
use super::{Report, limit_reset};

/// The events that get a hook.
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

pub(super) fn report(fields: &Fields) -> Option<Report> {
    super::report(fields, |event| signal(event, fields))
}

fn signal(event: &str, fields: &Fields) -> Option<HookEvent> {
    let turn = || fields.id("prompt_id");
    match event {
        "UserPromptSubmit" => fields.prompt("prompt", turn()),
        "Stop" => Some(HookEvent::TurnOver { turn: turn(), said: fields.long("last_assistant_message") }),
        "PostToolUseFailure" => Some(fields.tool_ended("error", true)),
        "Notification" => Some(HookEvent::Notified {
            kind: notice(fields.text("notification_type").unwrap_or_default())?,
            text: fields.question("message"),
        }),
        "StopFailure" => Some(failed(fields)),
        _ => common(event, fields),
    }
}

/// Translates the events that Claude Code and Codex have in common.
pub(super) fn common(event: &str, fields: &Fields) -> Option<HookEvent> {
    let working = |what: &str| Some(HookEvent::Working { what: Some(what.to_owned()), skill: None });
    match event {
        "SessionStart" => {
            Some(HookEvent::Started { source: start(fields.text("source").unwrap_or_default()) })
        }
        "PreToolUse" => Some(fields.tool_begins()),
        "PostToolUse" => Some(fields.tool_ended("tool_response", false)),
        "PermissionRequest" => Some(fields.permission()),
        "SubagentStart" => working(format!("agent {}", fields.word_or_default("agent_type")).trim_end()),
        "PreCompact" => working("compacts the conversation"),
        // The end of `/compact`, which has no Stop. (A SessionStart with the source `compact` may be in the
        // middle of a turn.)
        "PostCompact" if fields.text("trigger") == Some("manual") => {
            Some(HookEvent::Started { source: Start::CompactedOnCommand })
        }
        "PostCompact" => working("compacted the conversation"),
        "SessionEnd" => Some(HookEvent::Ended { reason: fields.word_or_default("reason") }),
        // SubagentStop is ignored: a subagent may end after the turn that began it.
        _ => None,
    }
}

/// Translates the `source` of a SessionStart. Codex, Gemini CLI and generic reports use the same words.
pub(super) fn start(source: &str) -> Start {
    match source {
        "startup" => Start::New,
        "resume" => Start::Resumed,
        "clear" => Start::Cleared,
        "compact" => Start::Compacted,
        _ => Start::Other,
    }
}

/// Translates the `notification_type` of a Notification. `None` for types that report an end and ask for nothing. An
/// unknown type counts as a question, so that a person looks.
fn notice(kind: &str) -> Option<Notice> {
    match kind {
        "idle_prompt" => Some(Notice::Idle),
        "permission_prompt" => Some(Notice::Permission),
        "auth_success" => Some(Notice::LoggedIn),
        "agent_completed" | "elicitation_complete" | "elicitation_response" => None,
        _ => Some(Notice::Question),
    }
}

/// Translates a StopFailure: `error` is a word (`rate_limit`, `overloaded`, …), the last message a sentence.
pub(super) fn failed(fields: &Fields) -> HookEvent {
    let word = fields.word_or_default("error");
    let sentence = fields.text("last_assistant_message").or_else(|| fields.text("error_details"));
    let error = match sentence {
        Some(sentence) if word.is_empty() => sentence.to_owned(),
        Some(sentence) => format!("{word}: {sentence}"),
        None => word.clone(),
    };
    let limited = word == "rate_limit" || limit_reset::is_limit(&error);
    let until = limit_reset::absolute_time(&error).filter(|_| limited);
    HookEvent::TurnFailed { error: clip(&error, protocol::activity::ASK_MAX), limited, until }
}
