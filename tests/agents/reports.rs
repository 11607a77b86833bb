//! Hook reports queued for workers: tool uses and ends of turns, where the configuration asks for them.

use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{Output, Pool, Program};

const BOTH: &str = "observations = true\nsummaries = true\n";

/// Messages of this kind.
#[track_caller]
fn queued(agent: &Agent<'_>, kind: &str) -> Vec<Value> {
    agent.pool.lines(&["queue", "ls", &agent.id, "--kind", kind])
}

/// Works one message of this kind; returns its handler's input.
#[track_caller]
fn worked(agent: &Agent<'_>, kind: &str) -> Value {
    let mut command = agent.pool.poolctl();
    command.args(["work", &agent.id, "--kind", kind, "--once", "--", "cat"]);
    Output::of(&mut command, b"").expect(0).json()
}

#[track_caller]
fn pool() -> Pool {
    fakes::pool(BOTH)
}

#[test]
fn nothing_is_reported_unless_it_is_asked_for() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.tell("TOOL it");
    assert_eq!((queued(&agent, "observation").len(), queued(&agent, "summarize").len()), (0, 0));
}

#[test]
fn each_use_of_a_tool_and_each_end_of_a_turn_is_a_message_for_workers() {
    let pool = pool();
    let agent = Agent::claude(&pool);
    let id = agent.send_until("TOOL it", "done");
    let waiting = queued(&agent, "observation");
    assert_eq!(waiting.len(), 2, "{waiting:?}");
    // A message of a hook does not count as a prompt of the session.
    assert!(waiting.iter().all(|message| message["origin"] == format!("hook:{}", agent.id)), "{waiting:?}");
    assert_eq!(agent.prompts(), ["TOOL it"]);
    let seen = worked(&agent, "observation");
    let wanted =
        json!(["Bash", { "command": "touch made" }, { "stdout": "made" }, false, id.parse::<u64>().unwrap()]);
    let fields = ["tool_name", "tool_input", "tool_response", "failed", "prompt"];
    assert_eq!(json!(fields.map(|name| &seen[name])), wanted, "{seen}");
    assert_eq!(seen["cwd"], agent.path("").to_str().unwrap().trim_end_matches('/'));
    worked(&agent, "observation");
    let said = worked(&agent, "summarize");
    assert_eq!(said["last_assistant_message"], "used it twice", "{said}");
    assert_eq!(queued(&agent, "summarize")[0]["state"], "done");
}

#[test]
fn c04_an_observation_tells_of_the_prompt_that_it_belongs_to() {
    let pool = pool();
    let agent = Agent::claude(&pool);
    for n in 1..4 {
        let id = agent.send_until(&format!("TOOL {n}"), "done");
        for _ in 0..2 {
            assert_eq!(worked(&agent, "observation")["prompt"].to_string(), id);
        }
        pool.restart_poold();
    }
    // A tool use in a turn that a person started belongs to no message.
    agent.hook("claude", &used(&agent, "by hand")).expect(0);
    assert_eq!(worked(&agent, "observation")["prompt"], json!(null));
}

/// A hook payload that reports a tool use.
fn used(agent: &Agent<'_>, id: &str) -> Value {
    json!({
        "hook_event_name": "PostToolUse", "session_id": agent.conversation(), "tool_name": "Edit",
        "tool_input": { "file_path": "/x" }, "tool_response": "ok", "tool_use_id": id,
    })
}

#[test]
fn c04_a_use_of_a_tool_that_is_told_late_belongs_to_its_prompt_too() {
    let pool = pool();
    let agent = Agent::claude(&pool);
    for n in 0..3 {
        let id = agent.send_until(&format!("SLOW {n}"), "accepted");
        agent.unheard("claude", &used(&agent, &format!("late {n}")));
        agent.go();
        agent.await_state(&id, "done");
        assert_eq!(worked(&agent, "observation")["prompt"].to_string(), id);
    }
}

#[test]
fn c07_what_a_hook_reports_is_on_disk_before_the_hook_ends() {
    let pool = pool();
    let agent = Agent::claude(&pool);
    for n in 1..4 {
        agent.hook("claude", &used(&agent, &format!("use-{n}"))).expect(0);
        pool.restart_poold();
        assert_eq!(queued(&agent, "observation").len(), n);
    }
}

#[test]
fn c07_the_same_use_of_a_tool_is_one_message() {
    let pool = pool();
    let agent = Agent::claude(&pool);
    for _ in 0..3 {
        agent.hook("claude", &used(&agent, "the same")).expect(0);
        agent.await_all_read();
    }
    agent.hook("claude", &used(&agent, "another")).expect(0);
    agent.await_all_read();
    let keys: Vec<_> = queued(&agent, "observation").iter().map(|m| m["key"].clone()).collect();
    assert_eq!(keys, ["tool:the same", "tool:another"]);
    // Also after the first was worked, and over a restart.
    worked(&agent, "observation");
    pool.restart_poold();
    agent.hook("claude", &used(&agent, "the same")).expect(0);
    agent.await_all_read();
    assert_eq!(queued(&agent, "observation").len(), 2);
    // A report left while `poold` was away is no second message.
    pool.kill9(Program::Poold);
    agent.hook("claude", &used(&agent, "a third")).expect(0);
    assert_eq!(agent.spooled(), 1);
    pool.start_poold();
    agent.await_all_read();
    agent.hook("claude", &used(&agent, "a third")).expect(0);
    agent.await_all_read();
    assert_eq!(queued(&agent, "observation").len(), 3);
}

#[test]
fn c07_a_full_queue_keeps_no_agent_from_its_work() {
    let pool = fakes::pool(&format!("{BOTH}[queue]\nmax_messages = 3\n"));
    let agent = Agent::claude(&pool);
    agent.tell("TOOL one");
    agent.await_activity("idle");
    for n in 0..5 {
        agent.hook("claude", &used(&agent, &format!("use-{n}"))).expect(0);
    }
    assert_eq!(queued(&agent, "observation").len() + queued(&agent, "summarize").len(), 3);
    agent.assert_no_hook_failed();
}

#[test]
fn c08_summaries_that_fail_again_and_again_are_held_back_and_not_lost() {
    let pool = fakes::pool(&format!(
        "{BOTH}[queue]\nmax_attempts = 100\nretry_backoff = '0ms'\nbreaker_failures = 3\nbreaker_pause = '10m'\n"
    ));
    let agent = Agent::claude(&pool);
    agent.tell("one");
    for _ in 0..3 {
        let mut command = pool.poolctl();
        command.args(["work", &agent.id, "--kind", "summarize", "--once", "--", "false"]);
        drop(Output::of(&mut command, b""));
    }
    assert_eq!(pool.status()["breakers"][0]["kind"], "summarize");
    // The agent goes on, and its reports are kept.
    agent.tell("two");
    agent.tell("three");
    pool.restart_poold();
    assert_eq!(pool.status()["breakers"][0]["kind"], "summarize");
    let kept = queued(&agent, "summarize");
    assert_eq!(kept.iter().filter(|message| message["state"] == "queued").count(), 3, "{kept:?}");
    let first = kept[0]["id"].to_string();
    pool.ok(&["queue", "retry", &agent.id, &first]);
    let said: Vec<_> =
        (0..3).map(|_| worked(&agent, "summarize")["last_assistant_message"].clone()).collect();
    assert_eq!(said, ["done: one", "done: two", "done: three"]);
    agent.assert_unharmed();
}

#[test]
fn a_worker_gets_observations_while_the_agent_works() {
    let pool = fakes::pool(&fakes::kind("watched", "codex", "", BOTH));
    let agent = Agent::new(&pool, "watched");
    let id = agent.send_until("SLOW work", "accepted");
    agent.hook("codex", &used(&agent, "now")).expect(0);
    assert_eq!(worked(&agent, "observation")["tool_name"], "Edit");
    assert_eq!(agent.state(&id), "accepted");
    agent.go();
    agent.await_state(&id, "done");
}
