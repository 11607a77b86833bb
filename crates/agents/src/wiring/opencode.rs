//! Hooks of OpenCode (1.18.33): a plugin, and a configuration file that names it, which OpenCode reads in
//! addition to the user's and the project's.

use super::{Wiring, WiringOptions};

const FILE: &str = "opencode.json";
const PLUGIN: &str = "opencode-tmux-pool.mjs";
/// The value of `$schema`, which OpenCode would otherwise add to the file.
const SCHEMA: &str = "https://opencode.ai/config.json";
/// Environment variable with the path of an additional configuration file.
pub(super) const CONFIG_ENV: &str = "OPENCODE_CONFIG";
/// The plugin, with placeholders of the form `"@NAME@"`.
const SOURCE: &str = include_str!("opencode.js");

pub(super) fn wire(poolctl: &str, options: &WiringOptions<'_>) -> Wiring {
    let text = |text: &str| serde_json::Value::from(text).to_string();
    let plugin = SOURCE
        .replace("\"@POOLCTL@\"", &text(poolctl))
        .replace("\"@APPROVE_MS@\"", &options.approve_ms.to_string());
    let Some(path) = options.dir.join(PLUGIN).to_str().map(str::to_owned) else {
        return Wiring::default();
    };
    let config =
        serde_json::json!({ "$schema": SCHEMA, "plugin": [format!("file://{}", percent_encode(&path))] });
    Wiring {
        files: vec![(PLUGIN.to_owned(), plugin.into_bytes()), (FILE.to_owned(), config.to_string().into())],
        env: vec![(CONFIG_ENV.into(), options.dir.join(FILE).into())],
        ..Wiring::default()
    }
}

/// Percent-encodes a path for a URL.
fn percent_encode(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    path.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::options_in;

    #[test]
    fn its_configuration_names_the_plugin_and_the_plugin_poolctl() {
        let wiring = wire("/my \"tools\"/poolctl", &options_in("/my state/s1", 90, 1));
        assert_eq!(wiring.env, [("OPENCODE_CONFIG".into(), "/my state/s1/opencode.json".into())]);
        let file = |name: &str| {
            let (_, bytes) = wiring.files.iter().find(|(file, _)| file == name).unwrap();
            String::from_utf8(bytes.clone()).unwrap()
        };
        assert_eq!(
            file(FILE),
            r#"{"$schema":"https://opencode.ai/config.json","plugin":["file:///my%20state/s1/opencode-tmux-pool.mjs"]}"#
        );
        let plugin = file(PLUGIN);
        assert!(plugin.contains(r#"const POOLCTL = "/my \"tools\"/poolctl""#), "{plugin}");
        assert!(plugin.contains("const APPROVE_MS = Number(90)") && !plugin.contains('@'), "{plugin}");
    }
}
