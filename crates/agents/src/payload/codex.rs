//! Hooks of Codex (0.169.0), and its older `notify`. Hooks are not called for threads of Codex's own (such as the one that finds
//! a title); SessionStart is called with the first prompt only.

use protocol::hook::Signal;

use super::fields::Fields;
use super::{Report, claude};

/// The events that are asked for.
pub(crate) const EVENTS: [&str; 11] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PermissionRequest",
    "SubagentStart",
    "PreCompact",
    "PostCompact",
    "Stop",
    "Interrupt",
    "SessionEnd",
];

pub(super) fn report(fields: &Fields) -> Option<Report> {
    match fields.text("type") {
        Some("agent-turn-complete") if !fields.has("hook_event_name") => Some(notify(fields)),
        _ => super::report(fields, |event| signal(event, fields)),
    }
}

fn signal(event: &str, fields: &Fields) -> Option<Signal> {
    let turn = || fields.id("turn_id");
    match event {
        "UserPromptSubmit" => fields.prompt("prompt", turn()),
        "Stop" => Some(Signal::TurnOver { turn: turn(), said: fields.long("last_assistant_message") }),
        "StopFailure" => Some(claude::failed(fields)),
        "Interrupt" => Some(Signal::Interrupted),
        _ => claude::common(event, fields),
    }
}

/// The JSON of `notify`. It is also called for threads of Codex's own: these have another `thread-id`, so the caller must
/// know the conversation.
fn notify(fields: &Fields) -> Report {
    Report {
        event: "agent-turn-complete".to_owned(),
        conversation: fields.id("thread-id"),
        transcript: None,
        signal: Some(Signal::TurnOver {
            turn: fields.id("turn-id"),
            said: fields.long("last-assistant-message"),
        }),
    }
}
