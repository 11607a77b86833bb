//! Hooks in a user's configuration, of which everything else stays unchanged.

use std::path::Path;

use agents::Adapter;
use agents::install::{InstallError, install, uninstall};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const POOLCTL: &str = "/usr/local/bin/poolctl";
const ALL: [Adapter; 3] = [Adapter::Claude, Adapter::Codex, Adapter::Gemini];

fn installed(adapter: Adapter, existing: &str) -> String {
    install(adapter, Some(existing), Path::new(POOLCTL)).unwrap()
}

fn removed(adapter: Adapter, existing: &str) -> Option<String> {
    uninstall(adapter, Some(existing)).unwrap()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_new_file_has_our_hooks_alone() {
    let text = install(Adapter::Claude, None, Path::new(POOLCTL)).unwrap();
    let hooks = value(&text)["hooks"].clone();
    let ours = json!([{"hooks": [
        {"type": "command", "command": POOLCTL, "args": ["hook", "claude", "--installed"], "timeout": 3}
    ]}]);
    assert_eq!(hooks["UserPromptSubmit"], ours);
    assert_eq!(hooks["Stop"], ours);
    assert!(hooks.get("Interrupt").is_none());
    let spaced = install(Adapter::Codex, Some(" \n"), Path::new("/my tools/poolctl")).unwrap();
    let hooks = value(&spaced)["hooks"].clone();
    let ours = json!([{"hooks": [
        {"type": "command", "command": "'/my tools/poolctl' hook codex --installed", "timeout": 3}
    ]}]);
    assert_eq!(hooks["Interrupt"], ours);
    assert!(hooks.get("StopFailure").is_none());
    let gemini = install(Adapter::Gemini, None, Path::new(POOLCTL)).unwrap();
    // Gemini CLI counts milliseconds.
    let ours = json!([{"hooks": [{
        "type": "command", "name": "tmux-pool", "command": "/usr/local/bin/poolctl hook gemini --installed",
        "timeout": 3000
    }]}]);
    assert_eq!(value(&gemini)["hooks"]["BeforeAgent"], ours);
    for (adapter, text) in [(Adapter::Claude, text), (Adapter::Codex, spaced), (Adapter::Gemini, gemini)] {
        assert!(text.starts_with("{\n  \"hooks\": {\n    \"") && text.ends_with("}\n"), "{text}");
        assert_eq!(value(&removed(adapter, &text).unwrap()), json!({}));
    }
}

/// A user's file, with an order and a format of its own.
const THEIRS: &str = r#"{
    "model": "opus",
    "zebra": 1.50,
    "hooks": {
        "Stop": [
            {"matcher": "*", "hooks": [{"type": "command", "command": "say done", "timeout": 5}]}
        ],
        "Custom": []
    },
    "env": { "A": "\u00e9", "B":"2" }
}
"#;

#[test]
fn what_is_theirs_stays_byte_for_byte() {
    for adapter in ALL {
        let with = installed(adapter, THEIRS);
        let mut lines = with.lines();
        for line in THEIRS.lines() {
            let kept = |with: &str| with == line || with.strip_suffix(',') == Some(line);
            assert!(lines.any(kept), "{line}\n{with}");
        }
        // Gemini CLI has no event of that name.
        let (prompted, stops) =
            if adapter == Adapter::Gemini { ("BeforeAgent", 1) } else { ("UserPromptSubmit", 2) };
        let opened = format!("\n        \"{prompted}\": [\n            {{\n");
        assert!(with.contains(&opened), "as they indent:\n{with}");
        let stop = &value(&with)["hooks"]["Stop"];
        assert_eq!(stop.as_array().unwrap().len(), stops, "after theirs");
        assert_eq!(removed(adapter, &with).as_deref(), Some(THEIRS));
    }
}

#[test]
fn twice_is_the_same_as_once() {
    for adapter in ALL {
        for theirs in ["{}", "{ }\n", r#"{"hooks":{}}"#, r#"{"hooks":{"Stop":[]},"a":1}"#, THEIRS] {
            let once = installed(adapter, theirs);
            assert_eq!(installed(adapter, &once), once);
        }
    }
}

#[test]
fn a_moved_poolctl_takes_the_place_of_the_old_one() {
    for adapter in ALL {
        let old = install(adapter, Some(THEIRS), Path::new("/old place/poolctl")).unwrap();
        assert_eq!(installed(adapter, &old), installed(adapter, THEIRS));
        assert!(!installed(adapter, &old).contains("/old place/"));
    }
}

#[test]
fn a_group_that_a_user_joined_keeps_what_is_theirs() {
    let mut with = value(&installed(Adapter::Claude, "{}"));
    let theirs = json!({"type": "command", "command": "say done"});
    with["hooks"]["Stop"][0]["hooks"].as_array_mut().unwrap().insert(0, theirs.clone());
    let left = removed(Adapter::Claude, &with.to_string()).unwrap();
    assert_eq!(value(&left), json!({"hooks": {"Stop": [{"hooks": [theirs]}]}}));
}

#[test]
fn another_agents_hooks_are_not_ours() {
    let claude = installed(Adapter::Claude, "{}");
    assert_eq!(removed(Adapter::Codex, &claude), None);
    assert_eq!(uninstall(Adapter::Claude, None), Ok(None));
    assert_eq!(removed(Adapter::Claude, THEIRS), None);
}

#[test]
fn what_the_agent_would_not_read_is_refused_with_the_place() {
    let refused =
        |text: &str| install(Adapter::Claude, Some(text), Path::new(POOLCTL)).unwrap_err().to_string();
    let cases = [
        ("[]", "the file should be an object"),
        (r#"{"hooks":[]}"#, "hooks should be an object"),
        (r#"{"hooks":null}"#, "hooks should be an object"),
        (r#"{"hooks":{"Stop":{}}}"#, "hooks.Stop should be a list"),
        (r#"{"hooks":{"Stop":[{"hooks":[]},"x"]}}"#, "hooks.Stop[1] should be an object"),
        (r#"{"hooks":{"Stop":[{"matcher":"*"}]}}"#, "hooks.Stop[0].hooks should be a list"),
        (r#"{"hooks":{"Stop":[{"hooks":{}}]}}"#, "hooks.Stop[0].hooks should be a list"),
        (r#"{"hooks":{},"a":1,"hooks":{}}"#, "hooks should be there only once"),
        (r#"{"hooks":{"Stop":[],"Stop":[]}}"#, "hooks.Stop should be there only once"),
    ];
    for (text, sentence) in cases {
        assert_eq!(refused(text), sentence, "{text}");
    }
    assert_eq!(refused("{\"a\": 1,}"), "it is not JSON: trailing comma at line 1 column 9");
    assert_eq!(refused("{\n// mine\n}"), "it is not JSON: key must be a string at line 2 column 1");
    assert!(refused("{} {}").contains("trailing characters"));
    let none = Adapter::None;
    assert_eq!(install(none, None, Path::new(POOLCTL)), Err(InstallError::Agent(none)));
    assert_eq!(uninstall(none, None), Err(InstallError::Agent(none)));
}

/// Any JSON of little depth.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\{}\\[\\],:é ]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z\"{}, ]{0,5}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Any configuration of the form that agents read.
fn any_configuration() -> impl Strategy<Value = Value> {
    let group = (prop::collection::vec(any_value(), 0..3), any_value())
        .prop_map(|(handlers, matcher)| json!({"matcher": matcher, "hooks": handlers}));
    let name = prop_oneof![Just("Stop".to_owned()), Just("PreToolUse".to_owned()), "[A-Z][a-z]{0,6}"];
    let events = prop::collection::btree_map(name, prop::collection::vec(group, 1..3), 1..4);
    let others = prop::collection::btree_map("[a-g][a-z]{0,4}", any_value(), 0..4);
    (events, others, any::<bool>()).prop_map(|(events, others, hooks)| {
        let mut map: Map<String, Value> = others.into_iter().collect();
        if hooks {
            map.insert("hooks".to_owned(), serde_json::to_value(events).unwrap());
        }
        Value::Object(map)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_was_there_comes_back(theirs in any_configuration(), pretty: bool) {
        let text = if pretty { serde_json::to_string_pretty(&theirs).unwrap() } else { theirs.to_string() };
        for adapter in ALL {
            let with = installed(adapter, &text);
            prop_assert_eq!(installed(adapter, &with), with.clone());
            if theirs != json!({}) {
                prop_assert_eq!(removed(adapter, &with), Some(text.clone()));
            }
        }
    }
}
