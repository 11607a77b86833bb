//! The handlers that are installed, and the test by which they are recognised.

use serde::Serialize;
use serde_json::{Value, json};

use super::{INSTALLED, InstallError};
use crate::adapter::Adapter;
use crate::payload::{claude, codex, gemini};
use crate::wiring::HookCall;

/// The timeout of each hook, in seconds; Codex's upper limit for hooks at the end of a session.
const TIMEOUT: u64 = 3;
/// The timeout for Gemini CLI, which counts milliseconds.
const TIMEOUT_MS: u64 = TIMEOUT * 1000;

/// Refuses agents for which no hooks are installed.
pub(super) fn check(adapter: Adapter) -> Result<(), InstallError> {
    match adapter {
        Adapter::Claude | Adapter::Codex | Adapter::Gemini => Ok(()),
        Adapter::Opencode | Adapter::Aider | Adapter::None => Err(InstallError::Agent(adapter)),
    }
}

/// Returns the groups to install, one for each event.
pub(super) fn wanted(adapter: Adapter, poolctl: &str) -> Result<Vec<(&'static str, Value)>, InstallError> {
    check(adapter)?;
    let command = HookCall::new(poolctl, adapter).with(INSTALLED);
    let (events, handler) = match adapter {
        Adapter::Codex => {
            (&codex::EVENTS[..], json!({"type": "command", "command": command.line(), "timeout": TIMEOUT}))
        }
        Adapter::Gemini => (
            &gemini::EVENTS[..],
            json!({"type": "command", "name": "tmux-pool", "command": command.line(), "timeout": TIMEOUT_MS}),
        ),
        _ => (
            &claude::EVENTS[..],
            json!({"type": "command", "command": poolctl, "args": command.args, "timeout": TIMEOUT}),
        ),
    };
    Ok(events.iter().map(|event| (*event, json!({"hooks": [handler]}))).collect())
}

/// Returns the handlers of the groups to install with their events, sorted by event.
pub(super) fn of_groups(wanted: &[(&str, Value)]) -> Vec<(String, Value)> {
    let mut handlers: Vec<_> =
        wanted.iter().map(|(event, group)| ((*event).to_owned(), group["hooks"][0].clone())).collect();
    handlers.sort_by(|a, b| a.0.cmp(&b.0));
    handlers
}

/// True if a handler was installed for this agent, with any path of poolctl.
pub(super) fn is_ours(adapter: Adapter, handler: &Value) -> bool {
    let args = ["hook", adapter.as_str(), INSTALLED];
    let as_args = || handler.get("args")?.as_array().map(|given| given.iter().eq(args.iter()));
    let as_line =
        || handler.get("command")?.as_str().map(|line| line.ends_with(&format!(" {}", args.join(" "))));
    as_args().or_else(as_line) == Some(true)
}

/// Returns JSON over several lines, indented for this depth.
pub(super) fn pretty(value: &(impl Serialize + ?Sized), unit: &str, depth: usize) -> String {
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut out = Vec::new();
    let written = value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, formatter));
    debug_assert!(written.is_ok(), "values are written to memory");
    String::from_utf8_lossy(&out).replace('\n', &format!("\n{}", unit.repeat(depth)))
}
