//! Hooks of Codex (0.169.0), and its older `notify`. Internal threads (such as the one that generates a
//! title) call no hooks; SessionStart is called no earlier than the first prompt.

use protocol::hook::HookEvent;

use super::fields::Fields;
use super::{Report, claude};

/// The events that get a hook.
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

fn signal(event: &str, fields: &Fields) -> Option<HookEvent> {
    let turn = || fields.id("turn_id");
    match event {
        "UserPromptSubmit" => fields.prompt("prompt", turn()),
        "Stop" => Some(HookEvent::TurnOver { turn: turn(), said: fields.long("last_assistant_message") }),
        "StopFailure" => Some(claude::failed(fields)),
        "Interrupt" => Some(HookEvent::Interrupted),
        _ => claude::common(event, fields),
    }
}

/// Reads the payload of `notify`. Internal threads call it as well, with another `thread-id`: the caller has
/// to compare the conversation.
fn notify(fields: &Fields) -> Report {
    Report {
        event: "agent-turn-complete".to_owned(),
        conversation: fields.id("thread-id"),
        transcript: None,
        signal: Some(HookEvent::TurnOver {
            turn: fields.id("turn-id"),
            said: fields.long("last-assistant-message"),
        }),
    }
}
