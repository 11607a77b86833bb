//! Hooks of Claude Code, as a plugin of the session's own.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{HookCall, Wire, Wiring};
use crate::answer::PERMISSION_REQUEST;
use crate::kind::Adapter;
use crate::payload::claude::EVENTS;

/// The directory of the plugin, which is its name as well.
const PLUGIN: &str = "tmux-pool";
/// Where a plugin has its hooks.
const FILE: &str = "tmux-pool/hooks/hooks.json";
/// So much longer than its hook waits for an answer the agent waits for the hook, in seconds: the hook ends first.
pub(super) const GRACE: u64 = 5;

#[derive(Serialize)]
struct Plugin {
    hooks: BTreeMap<&'static str, [Group; 1]>,
}

/// Handlers of an event; without a matcher they are for all tools.
#[derive(Serialize)]
pub(crate) struct Group {
    hooks: [Handler; 1],
}

/// With `args` the program is started as it is, by no shell.
#[derive(Serialize)]
struct Handler {
    r#type: &'static str,
    command: String,
    args: Vec<String>,
    timeout: u64,
}

impl Group {
    /// A group that calls this, for at most so many seconds.
    pub(crate) fn new(command: HookCall<'_>, timeout: u64) -> Self {
        let command_name = command.poolctl.to_owned();
        Self { hooks: [Handler { r#type: "command", command: command_name, args: command.args, timeout }] }
    }
}

pub(super) fn wire(poolctl: &str, wire: &Wire<'_>) -> Wiring {
    let group = |event: &str| {
        let command = HookCall::new(poolctl, Adapter::Claude);
        match event == PERMISSION_REQUEST && wire.approve_ms > 0 {
            true => Group::new(command.waiting(wire.approve_ms), wire.approve_ms.div_ceil(1000) + GRACE),
            false => Group::new(command, wire.hook_ms.div_ceil(1000).max(1)),
        }
    };
    let plugin = Plugin { hooks: EVENTS.into_iter().map(|event| (event, [group(event)])).collect() };
    let text = serde_json::to_vec_pretty(&plugin).unwrap_or_default();
    Wiring {
        args: vec!["--plugin-dir".into(), wire.dir.join(PLUGIN).into()],
        files: vec![(FILE.to_owned(), text)],
        env: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};

    use super::*;

    fn plugin(approve_ms: u64) -> Value {
        let dir = Path::new("/state/s1");
        let made = wire(
            "/opt/poolctl",
            &Wire { poolctl: Path::new("/"), dir, own_dir: dir, approve_ms, hook_ms: 4200 },
        );
        assert_eq!(made.args, ["--plugin-dir".into(), "/state/s1/tmux-pool".into()]);
        assert_eq!(made.files[0].0, "tmux-pool/hooks/hooks.json");
        serde_json::from_slice(&made.files[0].1).unwrap()
    }

    #[test]
    fn every_event_calls_poolctl_without_a_shell() {
        let plugin = plugin(600_000);
        let told = json!([{"hooks": [
            {"type": "command", "command": "/opt/poolctl", "args": ["hook", "claude"], "timeout": 5}
        ]}]);
        let asked = json!([{"hooks": [
            {"type": "command", "command": "/opt/poolctl", "args": ["hook", "claude", "--wait", "600000ms"], "timeout": 605}
        ]}]);
        let hooks = plugin["hooks"].as_object().unwrap();
        assert_eq!(hooks.len(), EVENTS.len());
        for (event, groups) in hooks {
            assert_eq!(groups, if event == "PermissionRequest" { &asked } else { &told }, "{event}");
        }
    }

    #[test]
    fn a_permission_that_nobody_waits_for_is_only_told() {
        let plugin = plugin(0);
        assert_eq!(plugin["hooks"]["PermissionRequest"], plugin["hooks"]["Stop"]);
    }
}
