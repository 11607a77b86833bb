//! Hooks of Aider (0.86.2): it runs a command whenever it waits for its user again, and appends each prompt
//! that it takes to a file. Both are set in its environment; its history of the conversation stays where the
//! user has it.

use protocol::OsBytes;

use super::{HookCall, Wiring, WiringOptions};
use crate::adapter::Adapter;

/// The history of prompts, in the session's own directory.
pub(super) const HISTORY: &str = "aider.input.history";
/// The variables: whether it notifies, by which command, and its history of prompts.
pub(super) const VARIABLES: [&str; 3] =
    ["AIDER_NOTIFICATIONS", "AIDER_NOTIFICATIONS_COMMAND", "AIDER_INPUT_HISTORY_FILE"];
/// The report of the command.
const IDLE: &str = r#"{"event":"idle"}"#;

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let idle = format!("{} '{IDLE}'", HookCall::new(poolctl, Adapter::Aider).line());
    let values: [OsBytes; 3] = ["true".into(), idle.into(), options.own_dir.join(HISTORY).into()];
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
    fn it_reports_when_it_waits_and_keeps_its_prompts_in_the_sessions_directory() {
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
    }
}
