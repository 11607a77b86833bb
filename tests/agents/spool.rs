//! Hook reports: checked for incarnation and conversation, kept in order, and read later if they were left
//! while no daemon answered.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{Output, PATIENCE, Program, wait_until};

/// A hook payload of this agent's own conversation.
fn says(agent: &Agent<'_>, event: &str, more: Value) -> Value {
    let mut input = json!({ "hook_event_name": event, "session_id": agent.conversation() });
    for (key, value) in more.as_object().unwrap() {
        input[key] = value.clone();
    }
    input
}

/// Everything that a report could change: the agent's fields of `show`.
fn known(agent: &Agent<'_>) -> Value {
    let shown = agent.show();
    json!([shown["activity"], shown["activity_since"], shown["ask"], shown["conversation"], shown["skill"]])
}

#[test]
fn a_report_of_an_earlier_incarnation_changes_nothing() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let old = agent.tag();
    pool.ok(&["restart", &agent.id]);
    let id = agent.send_until("SLOW work", "accepted");
    assert_ne!(agent.tag(), old);
    let before = known(&agent);
    let reports = [
        says(&agent, "Stop", json!({ "last_assistant_message": "no" })),
        says(&agent, "UserPromptSubmit", json!({ "prompt": "SLOW work" })),
        says(&agent, "PermissionRequest", json!({ "tool_name": "Bash", "tool_input": {} })),
        says(&agent, "SessionEnd", json!({ "reason": "other" })),
    ];
    for report in &reports {
        let said = agent.hook_of("claude", report, &old).expect(0);
        assert_eq!((said.stdout, said.stderr), (String::new(), String::new()));
    }
    assert_eq!((known(&agent), agent.state(&id)), (before, "accepted".to_owned()));
    agent.go();
    assert_eq!(agent.await_state(&id, "done")["result"], "done: SLOW work");
}

#[test]
fn an_agent_that_runs_inside_of_this_one_is_not_heard() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let id = agent.send_until("SLOW work", "accepted");
        let before = known(&agent);
        // A child agent inherited the environment, and has a conversation of its own.
        let of = |event: &str| json!({ "hook_event_name": event, "session_id": "a-child", "turn_id": "c1" });
        let mut reports = ["SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd"].map(of);
        reports[0]["source"] = json!("startup");
        reports[1]["prompt"] = json!("SLOW work");
        reports[3]["last_assistant_message"] = json!("the child is done");
        for report in &reports {
            // Hooks that the user installed leave these reports: they stay silent where the pool wired hooks.
            let mut command = agent.hook_command(kind, &agent.tag());
            let said =
                Output::of(command.arg("--installed").env("POOL_HOOKED", "1"), report.to_string().as_bytes());
            assert_eq!(said.expect(0).stdout, "");
            // By hooks of another kind. Only the start of a conversation of Codex, which chooses its id, is
            // taken for its own.
            if kind == "claude" || report["hook_event_name"] != "SessionStart" {
                assert_eq!(agent.hook(kind, report).expect(0).stdout, "");
            }
        }
        assert_eq!((known(&agent), agent.state(&id)), (before, "accepted".to_owned()), "{kind}");
        agent.go();
        assert_eq!(agent.await_state(&id, "done")["result"], "done: SLOW work");
        pool.ok(&["park", &agent.id]);
        pool.await_lifecycle(&agent.id, "parked");
        assert_eq!(agent.tell("and now?"), "done: and now?");
        let runs = agent.lines("runs");
        assert!(runs[1].starts_with("resume ") && runs[0].ends_with(&runs[1]["resume".len()..]), "{runs:?}");
    }
}

#[test]
fn what_a_hook_says_late_is_not_news() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let spool = |name: &str, at: u64, signal: Value| {
        let hook = json!({
            "session": agent.id, "tag": agent.tag(), "id": at, "at": at, "agent": "claude",
            "conversation": agent.conversation(), "transcript": null, "signal": signal,
        });
        agent.leave(name, &json!({ "version": 1, "hook": hook }).to_string());
    };
    let long_ago = 1_000_000_000_000;
    let id = agent.send_until("SLOW work", "accepted");
    // A report of a turn long ago: it ends neither the agent's turn nor the prompt.
    spool("old", long_ago, json!({ "turn_over": { "turn": null, "said": "long ago" } }));
    agent.await_all_read();
    assert_eq!((agent.state(&id).as_str(), &agent.show()["activity"]), ("accepted", &json!("busy")));
    agent.go();
    assert_eq!(agent.await_state(&id, "done")["result"], "done: SLOW work");
}

#[test]
fn files_that_no_hook_wrote_harm_nobody() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.tell("hello");
    let whole = json!({ "version": 1, "hook": { "session": agent.id, "signal": "interrupted" } }).to_string();
    agent.leave("a", "");
    agent.leave("b", "{\"version\":1,\"hook\":{\"sess");
    agent.leave("c", &whole);
    agent.leave("d", &"[".repeat(100_000));
    fs::create_dir(agent.hooks().join("e.json")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", agent.hooks().join("f.json")).unwrap();
    fs::write(agent.hooks().join("g.json"), vec![b' '; 5 << 20]).unwrap();
    wait_until("they are gone", PATIENCE, || agent.spooled() <= 1);
    assert_eq!(agent.tell("and again"), "done: and again");
    agent.assert_unharmed();
}

#[test]
fn hooks_never_fail_whatever_they_are_given_and_wherever_they_are() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let quiet = |input: &[u8], change: &dyn Fn(&mut Command) -> &mut Command| {
        let mut command = agent.hook_command("claude", &agent.tag());
        change(&mut command);
        let said = Output::of(&mut command, input).expect(0);
        assert_eq!((said.stdout, said.stderr), (String::new(), String::new()));
    };
    for input in [&b""[..], b"{", b"[]", b"\xff\xfe", b"{\"hook_event_name\":7}", &[b'['; 100_000]] {
        quiet(input, &|command| command);
    }
    let stop = says(&agent, "Stop", json!({})).to_string();
    let changes: [&dyn Fn(&mut Command) -> &mut Command; 6] = [
        &|command| command.env_remove("POOL_SESSION"),
        &|command| command.env("POOL_SESSION", "no session"),
        &|command| command.env("POOL_SESSION", "sess_99"),
        &|command| command.env("POOL_INCARNATION", "00"),
        &|command| command.env("POOL_SOCKET", "/nowhere/at/all"),
        &|command| command.args(["--of", "another version"]),
    ];
    for change in changes {
        quiet(stop.as_bytes(), change);
    }
    assert_eq!(agent.tell("hello"), "done: hello");
}

#[test]
fn reports_are_read_in_their_order_when_poold_is_back() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("SLOW work", "accepted");
    agent.await_all_read();
    pool.kill9(Program::Poold);
    let tool = json!({ "tool_name": "Bash", "tool_input": { "command": "make" }, "tool_use_id": "t" });
    let reports = [
        says(&agent, "PreToolUse", tool.clone()),
        says(&agent, "PostToolUse", tool),
        says(&agent, "Stop", json!({ "last_assistant_message": "first" })),
        says(&agent, "UserPromptSubmit", json!({ "prompt": "a person's own" })),
    ];
    for report in &reports {
        assert_eq!(agent.hook("claude", report).expect(0).stdout, "");
    }
    assert_eq!(agent.spooled(), 4);
    pool.start(Program::Poold);
    pool.await_complete();
    assert_eq!(agent.await_state(&id, "done")["result"], "first");
    assert_eq!(agent.await_activity("busy")["activity_source"], "hook");
    assert_eq!(agent.spooled(), 0);
}
