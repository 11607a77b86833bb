//! Hooks of Codex, as arguments. Codex runs only hooks whose hash it trusts: the SHA-256 of the hook as JSON
//! with sorted keys. A hook's key names its source (`/<session-flags>/config.toml` for arguments), its event,
//! and its position there. Keys and hashes are the ones that Codex 0.169.0 itself writes when a user trusts a
//! hook.

use std::fmt::Write as _;

use protocol::OsBytes;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::claude::GRACE;
use super::{HookCall, Wiring, WiringOptions};
use crate::adapter::Adapter;
use crate::answer::PERMISSION_REQUEST;
use crate::payload::codex::EVENTS;

/// Codex's upper limit for the timeouts of these hooks, in seconds. It cuts a longer timeout before it
/// computes the hash.
const SHORT_TIMEOUT: ([&str; 2], u64) = (["SessionEnd", "Interrupt"], 3);

/// The hashed form of a hook; its fields are in alphabetical order.
#[derive(Serialize)]
struct Trusted<'a> {
    event_name: &'a str,
    hooks: [Handler<'a>; 1],
}

#[derive(Serialize)]
struct Handler<'a> {
    r#async: bool,
    command: &'a str,
    timeout: u64,
    r#type: &'static str,
}

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let mut args = Vec::new();
    let mut trusted = Vec::new();
    for event in EVENTS {
        let (command, timeout) = hook(event, poolctl, options);
        let hash = hash(event, &command, timeout);
        let command = toml_string(&command);
        let group =
            format!("hooks.{event}=[{{hooks=[{{type=\"command\",command={command},timeout={timeout}}}]}}]");
        args.extend(["-c".to_owned(), group]);
        trusted.push(format!("\"{}\"={{trusted_hash=\"{hash}\"}}", key(event)));
    }
    args.extend([
        "-c".to_owned(),
        format!("hooks.state={{{}}}", trusted.join(",")),
        "--no-daemon".to_owned(),
    ]);
    Wiring { args: args.into_iter().map(OsBytes::from).collect(), ..Wiring::default() }
}

/// Returns the command line of an event's hook and its timeout in seconds.
fn hook(event: &str, poolctl: &str, options: &WiringOptions<'_>) -> (String, u64) {
    let call = HookCall::new(poolctl, Adapter::Codex);
    if event == PERMISSION_REQUEST && options.approve_ms > 0 {
        return (call.waiting(options.approve_ms).line(), options.approve_ms.div_ceil(1000) + GRACE);
    }
    let (events, limit) = SHORT_TIMEOUT;
    let timeout = options.hook_ms.div_ceil(1000).max(1);
    (call.line(), if events.contains(&event) { timeout.min(limit) } else { timeout })
}

/// Returns Codex's key of the only hook for an event among its arguments.
fn key(event: &str) -> String {
    format!("/<session-flags>/config.toml:{}:0:0", snake_case(event))
}

/// Returns the hash by which Codex trusts a hook.
fn hash(event: &str, command: &str, timeout: u64) -> String {
    let handler = Handler { r#async: false, command, timeout, r#type: "command" };
    let trusted = Trusted { event_name: &snake_case(event), hooks: [handler] };
    let json = serde_json::to_vec(&trusted).unwrap_or_default();
    let mut hash = "sha256:".to_owned();
    for byte in Sha256::digest(json) {
        let _written = write!(hash, "{byte:02x}");
    }
    hash
}

/// Converts `PreToolUse` to `pre_tool_use`.
fn snake_case(event: &str) -> String {
    let mut snake = String::new();
    for (at, c) in event.char_indices() {
        if c.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

/// Returns a text as a string of TOML, which is JSON's form with DEL escaped as well.
fn toml_string(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::options_in;

    fn args(poolctl: &str, approve_ms: u64, hook_ms: u64) -> Vec<String> {
        let wiring = wire(poolctl, &options_in("/state/s1", approve_ms, hook_ms));
        assert!(wiring.files.is_empty());
        wiring.args.iter().map(OsBytes::to_string_lossy).collect()
    }

    #[test]
    fn every_event_has_a_hook_that_is_trusted() {
        let args = args("/opt/poolctl", 0, 5000);
        let state = &args[args.len() - 2];
        assert!(
            state.starts_with("hooks.state={\"/<session-flags>/config.toml:session_start:0:0\"="),
            "{state}"
        );
        assert_eq!(args.last().unwrap(), "--no-daemon");
        assert_eq!(args.len(), EVENTS.len() * 2 + 3);
        assert!(args.iter().step_by(2).take(EVENTS.len() + 1).all(|arg| arg == "-c"));
        for event in EVENTS {
            let timeout = if ["SessionEnd", "Interrupt"].contains(&event) { 3 } else { 5 };
            let hook = format!(
                "hooks.{event}=[{{hooks=[{{type=\"command\",command=\"/opt/poolctl hook codex\",timeout={timeout}}}]}}]"
            );
            assert!(args.contains(&hook), "{hook}\n{args:?}");
            assert!(state.contains(&format!("\"{}\"={{trusted_hash=\"sha256:", key(event))), "{event}");
        }
    }

    /// The hashes are those that Codex 0.169.0 wrote when a user trusted these hooks.
    #[test]
    fn the_hash_is_the_one_that_codex_makes() {
        let hash_of = |event, command, timeout| hash(event, command, timeout);
        assert_eq!(
            hash_of("UserPromptSubmit", "/opt/poolctl hook codex", 5),
            "sha256:8b5b4f7707e387a48fe36c5747c589c2b50f49f960c963f3a160cead6fdb04fc"
        );
        assert_eq!(
            hash_of("SessionEnd", "'/opt/é x/poolctl' hook codex", 3),
            "sha256:ae6d84778b807b7a448b59f9bb54a0a8567e56dda8531be123a83051a191a3fe"
        );
    }

    #[test]
    fn a_permission_is_waited_for_as_long_as_it_is_said() {
        let asks = |approve_ms| {
            let args = args("/p", approve_ms, 1);
            args.into_iter().find(|arg| arg.starts_with("hooks.PermissionRequest=")).unwrap()
        };
        assert!(asks(90_500).contains("command=\"/p hook codex --wait 90500ms\",timeout=96"));
        assert!(asks(0).contains("command=\"/p hook codex\",timeout=1}"));
    }

    #[test]
    fn any_path_is_a_text_of_toml() {
        assert_eq!(toml_string("a\"b\\c\n\u{7f}\u{1}é"), r#""a\"b\\c\n\u007f\u0001é""#);
    }
}
