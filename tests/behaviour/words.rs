//! The contract for scripts: documents, keys, exit codes.

use serde_json::Value;

use crate::harness::{PATIENCE, Pool, Program, Talk, wait_until};

/// The contract.
const CONTRACT: &str = include_str!("../../crates/ctl/manual/cli.md");

/// Returns the rows of the table in a section of the contract, as cells.
fn rows(title: &str) -> Vec<Vec<&'static str>> {
    let section = CONTRACT.split(&format!("\n## {title}\n")).nth(1).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Asserts that a document has every key of the contract, and so have the objects in it that are not null.
#[track_caller]
fn has_keys_of(document: &Value, title: &str) {
    for row in rows(title) {
        for key in row[0].split('`').skip(1).step_by(2) {
            let (outer, inner) = key.split_once('.').unwrap_or((key, ""));
            has_keys(document, outer);
            if !inner.is_empty() && !document[outer].is_null() {
                has_keys(&document[outer], inner);
            }
        }
    }
}

#[track_caller]
fn has_keys(document: &Value, keys: &str) {
    let object = document.as_object().unwrap_or_else(|| panic!("no object: {document}"));
    for key in keys.split_whitespace() {
        assert!(object.contains_key(key), "no {key} in {document}");
    }
}

/// Asserts that the contract names the kind of an event.
#[track_caller]
fn is_of_a_known_kind(event: &Value) {
    let section = CONTRACT.split("\n## JSON of an event\n").nth(1).unwrap();
    let kinds = section.split("```").nth(1).unwrap().split_whitespace().skip(1).collect::<Vec<_>>();
    assert!(kinds.contains(&event["kind"].as_str().unwrap()), "{event}");
}

#[track_caller]
fn is_time(value: &serde_json::Value) {
    let text = value.as_str().unwrap_or_default();
    let form: String = text.chars().map(|c| if c.is_ascii_digit() { '9' } else { c }).collect();
    assert_eq!(form, "9999-99-99T99:99:99.999Z", "{value}");
}

#[test]
fn w35_documents_have_every_key_of_the_contract() {
    let pool = Pool::new();
    let made = pool.json(&["new", "web", "--label", "a=b", "--", "cat"]);
    pool.ok(&["thought", "set", "web", "--state", "active", "Reading"]);
    pool.ok(&["wait", "web", "--for", "idle"]);
    let shown = pool.show("web");
    let listed = pool.lines(&["ls"]);
    // Fields looked up for a single session may be null in the list; the others agree.
    for key in ["activity", "activity_source", "ask", "status", "rest_state", "thought", "confirm", "waits"] {
        assert_eq!(shown[key], listed[0][key], "{key}");
    }
    let messages = [pool.json(&["send", "web", "one"]), pool.lines(&["queue", "ls", "web"])[0].clone()];
    for session in [&made, &shown, &listed[0]] {
        has_keys_of(session, "JSON of a session");
        assert!(session["generator"].is_object() && session["tmux"].is_object(), "{session}");
        is_time(&session["created_at"]);
        is_time(&session["tmux"]["server_started_at"]);
        assert_eq!((&session["lifecycle"], &session["labels"]["a"]), (&"live".into(), &"b".into()));
    }
    for message in &messages {
        has_keys_of(message, "JSON of a message");
        is_time(&message["created_at"]);
    }
    for event in pool.events() {
        has_keys(&event, "seq at kind session");
        is_of_a_known_kind(&event);
        is_time(&event["at"]);
    }
    has_keys_of(&pool.status(), "JSON of the pool");
    assert_eq!(pool.json(&["rm", "--force", "web"])["removed"], true);
    pool.ctl(&["run", "ended", "--", "false"]).expect(1);
    let ended = pool.show("ended");
    has_keys_of(&ended, "JSON of a session");
    assert!(ended["exit"].is_object(), "{ended}");
}

#[test]
fn w12_events_carry_the_facts() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--label", "a=b", "--", "sleep", "1000"]);
    pool.ok(&["rename", &id, "site"]);
    pool.ok(&["kill", &id]);
    pool.ok(&["rm", &id]);
    let events = pool.lines(&["events", "--session", &id]);
    let of =
        |kind: &str| events.iter().find(|event| event["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    let created = of("session_created");
    assert_eq!((&created["name"], &created["labels"]["a"]), (&"web".into(), &"b".into()), "no placeholder");
    assert_eq!(of("session_renamed")["name"], "site");
    assert_eq!(of("session_stopped")["reason"], "killed");
    let deleted = of("session_deleted");
    assert_eq!((&deleted["reason"], &deleted["mode"]), (&"api_delete".into(), &"kill_tmux".into()));
    assert_eq!(deleted["tmux_alive"], false);
    let seqs: Vec<_> = pool.events().iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.windows(2).all(|pair| pair[1] == pair[0] + 1), "no gap: {seqs:?}");
}

#[test]
fn w33_a_follower_gets_the_state_then_the_mark_then_changes() {
    let pool = Pool::new();
    let id = pool.ok(&["new", "web", "--", "sleep", "1000"]);
    let mut command = pool.poolctl();
    let follower = Talk::start(command.args(["--json", "events", "--follow"]));
    let mark = || follower.lines().iter().position(|line| line.contains("\"synced\""));
    wait_until("changes come after the mark", PATIENCE, || {
        drop(pool.json(&["label", &id, "beat=1"]));
        drop(pool.json(&["label", &id, "beat=2"]));
        mark().is_some_and(|mark| follower.lines().len() > mark + 3)
    });
    let mut lines = follower.end();
    // The last line may have been cut off.
    lines.pop();
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mark = events.iter().position(|event| event["kind"] == "synced").expect("the mark");
    assert!(events[..mark].iter().all(|event| event["snapshot"] == true), "{events:?}");
    assert!(events[..mark].iter().any(|event| event["session"] == id.as_str()));
    assert!(events[mark + 1..].iter().all(|event| event["snapshot"] == false));
    let synced = events[mark]["seq"].as_u64().unwrap();
    let seqs: Vec<_> = events[mark + 1..].iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert!(seqs.iter().all(|seq| *seq > synced), "{seqs:?} after {synced}");
}

#[test]
fn exit_codes_are_those_of_the_contract() {
    let pool = Pool::with("[pool]\nmax_sessions = 2\n");
    let id = pool.ok(&["new", "web", "--", "cat"]);
    let code = |args: &[&str], code: i32, word: &str| {
        let told = |row: &Vec<&str>| row[0] == code.to_string() && row[1] == word;
        assert!(rows("Exit codes").iter().any(told), "the contract has {code} as {word}");
        let with_json = [&["--json"], args].concat();
        let error = pool.ctl(&with_json).expect(code).error();
        assert_eq!((&error["code"], &error["exit"]), (&word.into(), &code.into()), "{args:?}");
        assert!(!error["message"].as_str().unwrap().is_empty());
        let plain = pool.ctl(args).expect(code);
        assert!(plain.stdout.is_empty() && !plain.stderr.is_empty(), "{plain:?}");
    };
    code(&["new", "Bad Name", "--", "true"], 2, "usage");
    code(&["keys", &id, "NoSuchKey"], 2, "usage");
    code(&["new", "x", "--agent", "nobody"], 2, "usage");
    code(&["frobnicate"], 2, "usage");
    code(&["show", "nobody"], 3, "not_found");
    code(&["queue", "show", &id, "999999"], 3, "not_found");
    code(&["new", "web", "--", "true"], 4, "conflict");
    pool.ok(&["new", "two", "--", "sleep", "1000"]);
    code(&["rename", "two", "web"], 4, "conflict");
    code(&["new", "three", "--", "true"], 5, "refused");
    pool.ok(&["kill", "two"]);
    code(&["send", "two", "late"], 5, "refused");
    code(&["keys", "two", "x"], 5, "refused");
    code(&["attach", "two"], 2, "usage");
    pool.ctl(&["--timeout", "200ms", "wait", &id, "--for", "exit"]).expect(125);
    pool.ctl(&["run", "web", "--", "true"]).expect(125);
    pool.kill9(Program::Reaper);
    crate::harness::wait_until("the pool is not healthy", crate::harness::PATIENCE, || {
        pool.ctl(&["status"]).code == 1
    });
    pool.kill9(Program::Poold);
    code(&["--timeout", "300ms", "ls"], 7, "unavailable");
    let told = pool.ctl(&["--timeout", "300ms", "ls"]);
    assert!(told.stderr.contains("poolctl up"), "it says how to start one: {told:?}");
}
