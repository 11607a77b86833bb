//! Hooks of Gemini CLI (0.61.0), in a settings file in place of the system defaults.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{HookCall, Wiring, WiringOptions};
use crate::adapter::Adapter;
use crate::payload::gemini::EVENTS;

/// The name of the settings file.
const FILE: &str = "gemini-hooks.json";
/// Environment variable with the path of the system defaults, the file of the lowest rank. Hooks of all ranks
/// run.
const DEFAULTS_ENV: &str = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH";

#[derive(Serialize)]
struct Settings {
    general: General,
    hooks: BTreeMap<&'static str, [Group; 1]>,
}

/// Settings that the user's own ones outrank.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct General {
    session_retention: SessionRetention,
}

/// The removal of old conversations. At each start, it also removes those of other sessions in the same directory that
/// have no prompt yet, and those sessions then record nothing.
#[derive(Serialize)]
struct SessionRetention {
    enabled: bool,
}

#[derive(Serialize)]
struct Group {
    hooks: [Handler; 1],
}

#[derive(Serialize)]
struct Handler {
    r#type: &'static str,
    name: &'static str,
    command: String,
    /// In milliseconds.
    timeout: u64,
}

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let command = HookCall::new(poolctl, Adapter::Gemini).line();
    let handler = || Handler {
        r#type: "command",
        name: "tmux-pool",
        command: command.clone(),
        timeout: options.hook_ms,
    };
    let hooks = EVENTS.into_iter().map(|event| (event, [Group { hooks: [handler()] }])).collect();
    let general = General { session_retention: SessionRetention { enabled: false } };
    let settings = serde_json::to_vec_pretty(&Settings { general, hooks });
    Wiring {
        files: vec![(FILE.to_owned(), settings.unwrap_or_default())],
        env: vec![(DEFAULTS_ENV.into(), options.dir.join(FILE).into())],
        ..Wiring::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wiring::options_in;

    #[test]
    fn every_event_calls_poolctl() {
        let wiring = wire("/my tools/poolctl", &options_in("/state/s1", 1, 4200));
        assert_eq!(wiring.env, [(DEFAULTS_ENV.into(), "/state/s1/gemini-hooks.json".into())]);
        let settings: Value = serde_json::from_slice(&wiring.files[0].1).unwrap();
        let ours = json!([{"hooks": [{
            "type": "command", "name": "tmux-pool", "command": "'/my tools/poolctl' hook gemini", "timeout": 4200
        }]}]);
        let hooks = settings["hooks"].as_object().unwrap();
        assert_eq!(hooks.len(), EVENTS.len());
        assert!(hooks.values().all(|groups| *groups == ours));
    }

    #[test]
    fn no_conversation_is_removed_by_the_start_of_another_in_the_same_directory() {
        let wiring = wire("/opt/poolctl", &options_in("/state/s1", 1, 4200));
        let settings: Value = serde_json::from_slice(&wiring.files[0].1).unwrap();
        assert_eq!(settings["general"], json!({"sessionRetention": {"enabled": false}}));
    }
}
