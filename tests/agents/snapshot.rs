//! `ls --full`: all that a dashboard shows of every session, in one answer; and the plans of agents.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{Output, PATIENCE, Pool, send_signal, wait_until};

/// A repository's file of colours.
const COLOURS: &str =
    r##"{"palette":{"body":"#111111","outline":"#222222","accent":"#333333","shirt":"#444444"}}"##;

/// A session in `ls --full`.
fn listed(pool: &Pool, name: &str) -> Value {
    let all = pool.lines(&["ls", "--full", "--all"]);
    all.into_iter().find(|session| session["name"] == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn w25_w26_w38_one_answer_has_the_colours_the_output_and_the_thought_of_every_session() {
    let pool = Pool::new();
    let own = pool.path("work/own");
    fs::create_dir_all(own.join(".swimmers")).unwrap();
    fs::write(own.join(".swimmers/colors.json"), COLOURS).unwrap();
    let script = "i=0; while [ $i -lt 700 ]; do printf '\\033[31m漢'; i=$((i+1)); done; printf é🦀; exec cat";
    let cwd = own.to_str().unwrap();
    pool.ok(&["new", "web", "--cwd", cwd, "--size", "100x30", "--", "sh", "-c", script]);
    pool.ok(&["new", "silent", "--", "sleep", "1000"]);
    pool.ok(&["run", "ended", "--", "echo", "done"]);
    pool.ok(&["thought", "set", "web", "Reading it"]);
    wait_until("all of it is there", PATIENCE, || {
        listed(&pool, "web")["replay"].as_str().unwrap_or_default().ends_with("é🦀")
    });
    let (web, shown) = (listed(&pool, "web"), pool.json(&["show", "web"]));
    for key in ["replay", "theme", "thought", "transport_health"] {
        assert_eq!(web[key], shown[key], "{key}: as in show");
    }
    assert_eq!(web["replay"].as_str().unwrap().chars().count(), 500);
    assert_eq!((&web["theme"]["body"], &web["thought"]["text"]), (&json!("#111111"), &json!("Reading it")));
    assert_eq!(web["transport_health"]["state"], "observed");
    assert_eq!(listed(&pool, "silent")["replay"], "");
    assert_eq!(listed(&pool, "ended")["replay"], "done\n");
    // The text follows the output, also when the log becomes shorter.
    pool.ok(&["send", "web", "--wait", "done", "more"]);
    wait_until("what is new is there", PATIENCE, || {
        listed(&pool, "web")["replay"].as_str().unwrap().trim_end().ends_with("more")
    });
    pool.ok(&["clear", "web"]);
    wait_until("what is cleared is gone", PATIENCE, || {
        !listed(&pool, "web")["replay"].as_str().unwrap().contains("漢")
    });
    // Only `--full` shows these texts; filters hold for it; and a restart of the daemon forgets nothing.
    let plain = pool.lines(&["ls"]);
    assert!(plain.iter().all(|session| session["replay"].is_null() && session["theme"].is_null()));
    assert_eq!(pool.lines(&["ls", "--full", "--state", "stopped"]).len(), 1);
    pool.restart_poold();
    assert_eq!(listed(&pool, "ended")["replay"], "done\n");
    assert_eq!(listed(&pool, "web")["theme"]["own"], true);
    // The same texts are shown by `rpc`, and to people.
    let mut rpc = pool.poolctl();
    let call = json!({"request": {"snapshot": {"all": true, "state": null, "labels": {}, "agent": null}}});
    let answer = Output::of(rpc.arg("rpc"), format!("{call}\n").as_bytes()).expect(0);
    assert!(answer.stdout.contains("\"replay\":\"done\\n\""), "{}", answer.stdout);
    let text = pool.ok(&["ls", "--full", "--all"]);
    assert!(text.contains("done") && text.contains("silent"), "{text}");
}

#[test]
fn w25_a_pipe_in_place_of_the_colours_keeps_nobody_waiting() {
    let pool = Pool::new();
    let dir = pool.path("work/.swimmers");
    fs::create_dir_all(&dir).unwrap();
    nix::unistd::mkfifo(&dir.join("colors.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    pool.ok(&["new", "web", "--cwd", pool.path("work").to_str().unwrap(), "--", "cat"]);
    for verb in [&["show", "web"][..], &["ls", "--full"]].repeat(3) {
        let web = pool.ctl(&[&["--json", "--timeout", "5s"], verb].concat()).expect(0).json();
        assert_eq!((&web["name"], &web["theme"]["own"]), (&json!("web"), &json!(false)), "{web}");
    }
}

#[test]
fn w06_what_has_ended_or_is_lost_keeps_the_colours_of_its_directory() {
    let pool = Pool::new();
    let own = pool.path("work/own");
    fs::create_dir_all(own.join(".swimmers")).unwrap();
    fs::write(own.join(".swimmers/colors.json"), COLOURS).unwrap();
    let cwd = own.to_str().unwrap();
    pool.ok(&["run", "ended", "--cwd", cwd, "--", "true"]);
    pool.ok(&["new", "lost", "--cwd", cwd, "--", "sleep", "1000"]);
    send_signal(pool.tmux_pid().unwrap(), Signal::SIGKILL);
    pool.await_lifecycle("lost", "lost");
    for restarted in [false, true] {
        if restarted {
            pool.restart_poold();
        }
        for (name, state) in [("ended", "stopped"), ("lost", "lost")] {
            let (full, shown) = (listed(&pool, name), pool.show(name));
            assert_eq!(full["lifecycle"], state);
            assert_eq!((&full["theme"]["own"], &full["theme"]["body"]), (&json!(true), &json!("#111111")));
            assert_eq!(shown["theme"], full["theme"], "{name}, restarted: {restarted}");
        }
    }
}

#[test]
fn the_plan_and_the_files_of_an_agent_are_shown_and_a_new_conversation_has_none() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let tag = fs::read_to_string(agent.path("tag")).unwrap().trim().to_owned();
    let conversation = pool.show(&agent.id)["conversation"]["id"].as_str().unwrap().to_owned();
    let tell = |event: &str, fields: Value| {
        let mut payload = json!({"hook_event_name": event, "session_id": conversation, "cwd": "/src"});
        payload.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let mut hook = pool.poolctl();
        hook.env("POOL_SESSION", &agent.id).env("POOL_INCARNATION", &tag).args(["hook", "claude"]);
        Output::of(&mut hook, payload.to_string().as_bytes()).expect(0);
    };
    assert_eq!((&pool.show(&agent.id)["plan"], &pool.show(&agent.id)["files"]), (&Value::Null, &json!([])));
    assert!(pool.ctl(&["show", &agent.id, "--plan"]).expect(3).stderr.contains("no plan"));
    tell("UserPromptSubmit", json!({"prompt": "plan it"}));
    let plan = "# Plan\n1. do \u{1b}[31mit\n";
    tell("PreToolUse", json!({"tool_name": "ExitPlanMode", "tool_input": {"plan": plan}}));
    let wrote =
        |path: &str| json!({"tool_name": "Write", "tool_input": {"file_path": path}, "tool_response": {}});
    tell("PostToolUse", wrote("/src/a"));
    tell("PostToolUse", wrote("/src/b"));
    let shown = pool.show(&agent.id);
    assert_eq!((&shown["plan"], &shown["files"]), (&json!(plan), &json!(["/src/b", "/src/a"])));
    assert_eq!(pool.json(&["show", &agent.id, "--plan"])["plan"], plan);
    let text = pool.ok(&["show", &agent.id, "--plan"]);
    assert!(text.starts_with("# Plan\n1. do ") && !text.contains('\u{1b}'), "{text:?}");
    assert!(pool.ok(&["show", &agent.id]).contains("/src/b and 1 more"));
    assert_eq!(pool.lines(&["ls"])[0]["plan"], Value::Null);
    tell("SessionStart", json!({"source": "clear"}));
    assert_eq!((&pool.show(&agent.id)["plan"], &pool.show(&agent.id)["files"]), (&Value::Null, &json!([])));
}
