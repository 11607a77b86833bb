//! Hooks of Claude Code, as a plugin for one session.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{HookCall, Wiring, WiringOptions};
use crate::adapter::Adapter;
use crate::answer::PERMISSION_REQUEST;
use crate::payload::claude::EVENTS;

/// The plugin's directory, which is also its name.
const PLUGIN: &str = "tmux-pool";
/// The plugin's file of hooks.
const FILE: &str = "tmux-pool/hooks/hooks.json";
/// Seconds by which the agent's time limit for a permission hook exceeds the hook's own wait, so that the
/// hook ends first.
pub(super) const GRACE: u64 = 5;

#[derive(Serialize)]
struct Plugin {
    hooks: BTreeMap<&'static str, [Group; 1]>,
}

/// The handlers of an event; without a matcher, for all tools.
#[derive(Serialize)]
struct Group {
    hooks: [Handler; 1],
}

/// A handler with `args` is started without a shell.
#[derive(Serialize)]
struct Handler {
    r#type: &'static str,
    command: String,
    args: Vec<String>,
    timeout: u64,
}

impl Group {
    /// Returns a group with one handler. `timeout` is in seconds.
    fn new(call: HookCall<'_>, timeout: u64) -> Self {
        let command = call.poolctl.to_owned();
        Self { hooks: [Handler { r#type: "command", command, args: call.args, timeout }] }
    }
}

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let group = |event: &str| {
        let call = HookCall::new(poolctl, Adapter::Claude);
        match event == PERMISSION_REQUEST && options.approve_ms > 0 {
            true => Group::new(call.waiting(options.approve_ms), options.approve_ms.div_ceil(1000) + GRACE),
            false => Group::new(call, options.hook_ms.div_ceil(1000).max(1)),
        }
    };
    let plugin = Plugin { hooks: EVENTS.into_iter().map(|event| (event, [group(event)])).collect() };
    let text = serde_json::to_vec_pretty(&plugin).unwrap_or_default();
    Wiring {
        args: vec!["--plugin-dir".into(), options.dir.join(PLUGIN).into()],
        files: vec![(FILE.to_owned(), text)],
        ..Wiring::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wiring::options_in;

    fn plugin(approve_ms: u64) -> Value {
        let wiring = wire("/opt/poolctl", &options_in("/state/s1", approve_ms, 4200));
        assert_eq!(wiring.args, ["--plugin-dir".into(), "/state/s1/tmux-pool".into()]);
        assert_eq!(wiring.files[0].0, "tmux-pool/hooks/hooks.json");
        serde_json::from_slice(&wiring.files[0].1).unwrap()
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
