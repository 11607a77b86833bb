//! Hooks of Aider (0.86.2): it runs a command whenever it waits for its user again, and appends each prompt
//! that it takes to a file. Both are set in its environment, and so is the file with its record of the conversation:
//! by default, all sessions in a directory have one file, and each would resume what all of them said.

use protocol::OsBytes;

use super::{HookCall, Wiring, WiringOptions};
use crate::adapter::Adapter;

/// The history of prompts, in the session's own directory.
pub(super) const HISTORY: &str = "aider.input.history";
/// The record of the conversation, in the same directory.
pub(super) const CONVERSATION: &str = "aider.chat.history.md";
/// The name of that record once another conversation has begun.
pub(super) const FORMER_CONVERSATION: &str = "aider.chat.history.former.md";
/// The variables: whether it notifies, by which command, its history of prompts, and its record of the conversation.
pub(super) const VARIABLES: [&str; 4] = [
    "AIDER_NOTIFICATIONS",
    "AIDER_NOTIFICATIONS_COMMAND",
    "AIDER_INPUT_HISTORY_FILE",
    "AIDER_CHAT_HISTORY_FILE",
];
/// The report of the command.
const IDLE: &str = r#"{"event":"idle"}"#;

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let idle = format!("{} '{IDLE}'", HookCall::new(poolctl, Adapter::Aider).line());
    let own = |name: &str| OsBytes::from(options.own_dir.join(name));
    let values: [OsBytes; 4] = ["true".into(), idle.into(), own(HISTORY), own(CONVERSATION)];
    Wiring {
        env: VARIABLES.into_iter().map(OsBytes::from).zip(values).collect(),
        overrides: true,
        ..Wiring::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn it_reports_when_it_waits_and_keeps_its_records_in_the_sessions_directory() {
        let (dir, own_dir) = (Path::new("/meta/s1"), Path::new("/state/s1"));
        let wiring = wire(
            "/my tools/poolctl",
            &WiringOptions { poolctl: Path::new("/"), dir, own_dir, approve_ms: 0, hook_ms: 1 },
        );
        let has = |key: &str, value: &str| {
            assert!(wiring.env.contains(&(key.into(), value.into())), "{:?}", wiring.env);
        };
        has("AIDER_NOTIFICATIONS_COMMAND", r#"'/my tools/poolctl' hook aider '{"event":"idle"}'"#);
        has("AIDER_INPUT_HISTORY_FILE", "/state/s1/aider.input.history");
        has("AIDER_CHAT_HISTORY_FILE", "/state/s1/aider.chat.history.md");
    }
}
