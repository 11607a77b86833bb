//! Permission requests: answered from outside, at the terminal, or not at all.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::faults::support::crash_at;
use crate::harness::{PATIENCE, Pool, Program, Talk, is_stopped, send_signal, wait_until};

/// Exit code for a conflict.
const CONFLICT: i32 = 4;

/// Sends a prompt that makes the agent ask for a permission; returns the ids of message and request.
#[track_caller]
fn asked(agent: &Agent<'_>) -> (String, String) {
    let id = agent.send(&format!("ASK me, {}", agent.prompts().len()));
    let ask = agent.await_ask();
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["activity_source"]), (&json!("attention"), &json!("hook")));
    let wanted = json!(["permission", "Bash", "touch made"]);
    assert_eq!(json!([shown["ask"]["kind"], shown["ask"]["tool"], shown["ask"]["text"]]), wanted);
    (id, ask)
}

/// The events about answers: request, whether it was allowed, and by whom.
#[track_caller]
fn answers(agent: &Agent<'_>) -> Vec<Value> {
    let answers = agent.events("ask_answered");
    answers.iter().map(|event| json!([event["ask"], event["allowed"], event["by"]])).collect()
}

#[test]
fn a_permission_is_given_or_denied_from_outside() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let (id, _) = asked(&agent);
        pool.ctl(&["wait", &agent.id, "--for", "attention,error"]).expect(10);
        let said = pool.ok(&["approve", &agent.id]);
        assert!(said.contains("touch made") && said.contains("allowed"), "{said}");
        assert_eq!(agent.await_state(&id, "done")["result"], "allowed from outside", "{kind}");
        assert!(agent.path("made").exists());
        std::fs::remove_file(agent.path("made")).unwrap();
        let (id, _) = asked(&agent);
        pool.ok(&["approve", &agent.id, "--deny", "--reason", "not on my watch"]);
        let result = agent.await_state(&id, "done")["result"].as_str().unwrap().to_owned();
        assert!(result.contains("not on my watch"), "{result}");
        assert!(!agent.path("made").exists());
        let told = answers(&agent);
        let verdicts: Vec<_> = told.iter().map(|answer| (&answer[1], &answer[2])).collect();
        assert_eq!(verdicts, [(&json!(true), &json!("approve")), (&json!(false), &json!("approve"))]);
        agent.assert_unharmed();
    }
}

#[test]
fn questions_of_an_agent_are_answered_in_words() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send("QUESTION");
    agent.await_ask();
    let shown = agent.show();
    assert_eq!((&shown["ask"]["kind"], &shown["ask"]["answerable"]), (&json!("question"), &json!(true)));
    assert_eq!(shown["ask"]["text"], "Which colour? (Red / Blue)\nWhy?");
    let text = pool.ok(&["show", &agent.id]);
    assert!(text.contains("--answer TEXT"), "{text}");
    // A plain yes is no answer, and neither is an answer to only one of the questions.
    for args in [&[][..], &["--answer", "Red"], &["--answer", "a", "--answer", "b", "--answer", "c"]] {
        let refused = pool.ctl(&[&["approve", &agent.id], args].concat()).expect(CONFLICT);
        assert!(refused.stderr.contains("asks 2 questions"), "{refused:?}");
    }
    let said = pool.ok(&["approve", &agent.id, "--answer", "Blue \"sky\"", "--answer", "-"]);
    assert!(said.contains("answered"), "{said}");
    let result = agent.await_state(&id, "done")["result"].as_str().unwrap().to_owned();
    let printed: Value = serde_json::from_str(result.strip_prefix("answered: ").unwrap()).unwrap();
    let decision = &printed["hookSpecificOutput"]["decision"];
    let answers = json!({"Which\ncolour?": "Blue \"sky\"", "Why?": "-"});
    assert_eq!((&decision["behavior"], &decision["updatedInput"]["answers"]), (&json!("allow"), &answers));
    // A permission takes no words.
    let (id, _) = asked(&agent);
    let refused = pool.ctl(&["approve", &agent.id, "--answer", "yes"]).expect(CONFLICT);
    assert!(refused.stderr.contains("asks for a permission"), "{refused:?}");
    pool.ok(&["approve", &agent.id]);
    agent.await_state(&id, "done");
    // A question may be declined.
    let id = agent.send("QUESTION again");
    agent.await_ask();
    pool.ok(&["approve", &agent.id, "--deny", "--reason", "guess"]);
    let result = agent.await_state(&id, "done")["result"].as_str().unwrap().to_owned();
    assert!(result.starts_with("denied: ") && result.contains("guess"), "{result}");
    agent.assert_unharmed();
}

#[test]
fn a_question_that_no_hook_tells_of_is_seen_and_answered_at_the_terminal() {
    let pool = fakes::pool("");
    let agent = Agent::codex(&pool);
    let id = agent.send("PLAN it");
    pool.ctl(&["wait", &agent.id, "--for", "attention", "--timeout", "30s"]).expect(0);
    let shown = agent.show();
    let asked = json!([shown["ask"]["kind"], shown["ask"]["answerable"], shown["activity_source"]]);
    assert_eq!(asked, json!(["question", false, "screen"]));
    assert!(shown["ask"]["text"].as_str().unwrap().contains("Which colour?"), "{shown}");
    let refused = pool.ctl(&["approve", &agent.id, "--answer", "Red"]).expect(CONFLICT);
    assert!(refused.stderr.contains("poolctl attach"), "{refused:?}");
    // The question ends as soon as the title changes, whatever the hooks say.
    agent.keys(&["2"]);
    wait_until("it is busy again", PATIENCE, || agent.show()["activity"] == "busy");
    assert_eq!(agent.state(&id), "accepted");
    std::fs::write(agent.path("go"), "").unwrap();
    agent.await_state(&id, "done");
    agent.assert_unharmed();
}

#[test]
fn status_names_who_waits_for_a_person_and_is_healthy_all_the_same() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let asking = || pool.ctl(&["--json", "status"]).expect(0).json()["asking"].clone();
    assert_eq!(asking(), json!([]));
    let (id, _) = asked(&agent);
    let shown = agent.show();
    let waits = json!([{
        "session": agent.id, "name": shown["name"], "kind": "permission", "answerable": true,
        "since": shown["activity_since"],
    }]);
    assert_eq!(asking(), waits);
    let text = pool.ctl(&["status"]).expect(0).stdout;
    let name = shown["name"].as_str().unwrap();
    assert!(text.contains(": healthy\n") && text.contains(&format!("`poolctl approve {name}`")), "{text}");
    pool.ok(&["approve", &agent.id]);
    agent.await_state(&id, "done");
    assert_eq!(asking(), json!([]));
}

#[test]
fn an_answer_is_for_one_request_and_no_other() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT, "nothing is asked");
    let (id, first) = asked(&agent);
    pool.ok(&["approve", &agent.id, "--ask", &first]);
    agent.await_state(&id, "done");
    std::fs::remove_file(agent.path("made")).unwrap();
    let (id, second) = asked(&agent);
    assert_ne!(first, second);
    let refused = pool.ctl(&["approve", &agent.id, "--ask", &first]).expect(CONFLICT);
    assert!(refused.stderr.contains(&second), "{}", refused.stderr);
    agent.await_state(&id, "accepted");
    assert!(!agent.path("made").exists());
    pool.ok(&["approve", &agent.id, "--ask", &second]);
    agent.await_state(&id, "done");
    assert!(agent.path("made").exists());
}

/// Runs a subagent's hook that asks for another permission, and waits.
#[track_caller]
fn asks_beside(agent: &Agent<'_>, command: &str) -> Talk {
    let asks = json!({
        "hook_event_name": "PermissionRequest", "session_id": agent.conversation(), "agent_id": "a1",
        "tool_name": "Bash", "tool_input": {"command": command},
    });
    let mut hook = agent.hook_command("claude", &agent.tag());
    let mut hook = Talk::start(hook.args(["--wait", "30s"]));
    hook.say(&asks.to_string());
    hook.hang_up();
    hook
}

#[test]
fn requests_of_subagents_wait_for_their_turn_and_any_of_them_can_be_answered() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, first) = asked(&agent);
    let mut beside = Vec::new();
    for command in ["two", "three"] {
        beside.push(asks_beside(&agent, command));
        let more =
            |shown: &Value| shown["activity_detail"].as_str().map_or(0, |more| more.split(", ").count());
        let shown = agent.await_shown("one more", |shown| more(shown) == beside.len());
        assert_eq!(shown["ask"]["id"], first, "the oldest is shown");
    }
    assert_eq!(answers(&agent), Vec::<Value>::new(), "there is no answer yet");
    let detail = agent.show()["activity_detail"].as_str().unwrap().to_owned();
    let third = detail.rsplit(", ").next().unwrap();
    let second = detail.rsplit(", ").nth(1).unwrap().rsplit(' ').next().unwrap();
    pool.ok(&["approve", &agent.id, "--ask", third, "--deny"]);
    assert_eq!(beside[1].await_end(), Some(0));
    assert!(beside[1].lines().concat().contains("deny"));
    assert_eq!(agent.show()["ask"]["id"], first);
    pool.ok(&["approve", &agent.id, "--ask", second]);
    assert_eq!(beside[0].await_end(), Some(0));
    assert!(beside[0].lines().concat().contains("allow"));
    let shown = agent.await_shown("only the first", |shown| shown["activity_detail"].is_null());
    assert_eq!((&shown["activity"], &shown["ask"]["id"]), (&json!("attention"), &json!(first)));
    pool.ok(&["approve", &agent.id]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed from outside");
    assert_eq!(answers(&agent).len(), 3);
    agent.assert_unharmed();
}

#[test]
fn a_hook_ends_at_once_when_its_request_was_answered_at_the_terminal() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    let mut beside = asks_beside(&agent, "two");
    agent.await_shown("one more", |shown| shown["activity_detail"].is_string());
    let (program, _) = pool.pane_pids(&agent.id);
    let waits = || {
        let hooks = crate::harness::children(program);
        hooks.into_iter().any(|pid| crate::harness::words(pid).windows(6).any(|word| word == b"--wait"))
    };
    assert!(waits());
    agent.keys(&["1"]);
    wait_until("the hook ends", PATIENCE, || !waits());
    agent.await_state(&id, "done");
    // The end of the turn ends the other requests made in it.
    assert_eq!(beside.await_end(), Some(0));
    assert_eq!(beside.lines().concat(), "");
    let told: Vec<_> = answers(&agent).iter().map(|answer| answer[1].clone()).collect();
    assert_eq!(told, [json!(true), json!(false)]);
}

#[test]
fn a_request_holds_prompts_back() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (one, _) = asked(&agent);
    let two = agent.send("two");
    agent.await_shown("waiting", |shown| shown["waits"].is_string());
    assert_eq!(agent.state(&two), "queued");
    pool.ok(&["approve", &agent.id]);
    agent.await_state(&one, "done");
    agent.await_state(&two, "done");
    agent.assert_unharmed();
}

#[test]
fn what_nobody_answers_in_time_is_left_to_the_terminal() {
    let soon = fakes::kind("soon", "claude", "", "approve_wait = '1s'\n");
    let soon_codex = fakes::kind("sooner", "codex", "", "approve_wait = '1s'\n");
    let pool = fakes::pool(&format!("{soon}{soon_codex}"));
    for kind in ["soon", "sooner"] {
        let agent = Agent::new(&pool, kind);
        let id = agent.send("ASK me");
        wait_until("the hook ends", PATIENCE, || agent.lines("hooks-ended") == ["0"]);
        assert_eq!(std::fs::read(agent.path("answer")).unwrap(), b"", "it prints nothing");
        let shown = agent.await_shown("not answerable", |shown| shown["ask"]["answerable"] == false);
        assert_eq!(shown["activity"], "attention");
        assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT);
        agent.keys(&["Enter"]);
        assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
        assert_eq!(agent.await_activity("idle")["ask"], json!(null));
        agent.assert_unharmed();
    }
}

#[test]
fn an_answer_at_the_terminal_closes_the_request() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, ask) = asked(&agent);
    agent.keys(&["1"]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
    let shown = agent.await_activity("idle");
    assert_eq!(shown["ask"], json!(null));
    assert_eq!(answers(&agent), [json!([ask, true, "the terminal"])]);
    assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT);
    // The earlier hook, which still waits in vain, does not disturb the next request.
    std::fs::remove_file(agent.path("made")).unwrap();
    let (id, second) = asked(&agent);
    assert_ne!(ask, second);
    pool.ok(&["approve", &agent.id]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed from outside");
    agent.assert_unharmed();
}

#[test]
fn a_refusal_at_the_terminal_which_no_hook_tells_of_is_seen_after_a_silence() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    agent.keys(&["Escape"]);
    // The hook was ended: users are told that only the terminal can answer.
    agent.await_shown("not answerable", |shown| shown["ask"]["answerable"] != true);
    assert_eq!(agent.await_state(&id, "dead")["reason"], "interrupted");
    assert_eq!(agent.show()["activity"], "idle");
    assert!(!agent.path("made").exists());
    assert_eq!(agent.tell("next"), "done: next");
}

#[test]
fn a_hook_that_waits_ends_without_an_answer_when_poold_dies() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let (id, _) = asked(&agent);
        pool.kill9(Program::Poold);
        wait_until("the hook ends", PATIENCE, || agent.lines("hooks-ended") == ["0"]);
        assert_eq!(std::fs::read(agent.path("answer")).unwrap(), b"", "it prints nothing");
        pool.start(Program::Poold);
        pool.await_complete();
        // The dialog is still at the terminal, and is reported.
        let shown = agent.await_shown("not answerable", |shown| shown["ask"]["answerable"] == false);
        assert_eq!((&shown["activity"], &shown["ask"]["kind"]), (&json!("attention"), &json!("permission")));
        assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT);
        agent.keys(&["Enter"]);
        assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
        agent.assert_unharmed();
    }
}

#[test]
fn a_request_is_answerable_again_once_poold_is_back() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let (id, ask) = asked(&agent);
        for signal in [Signal::SIGKILL, Signal::SIGTERM, Signal::SIGKILL, Signal::SIGTERM] {
            pool.end(Program::Poold, signal);
            pool.start_poold();
            let shown = agent.await_shown("answerable", |shown| shown["ask"]["answerable"] == true);
            assert_eq!((&shown["ask"]["id"], &shown["activity"]), (&json!(ask), &json!("attention")));
        }
        assert_eq!(agent.lines("hooks-ended"), [""; 0], "it waits all the time");
        pool.ok(&["approve", &agent.id]);
        assert_eq!(agent.await_state(&id, "done")["result"], "allowed from outside");
        assert!(agent.path("made").exists());
        agent.assert_unharmed();
    }
}

#[test]
fn an_answer_that_is_on_disk_and_was_not_told_is_asked_at_the_terminal() {
    let pool = fakes::pool("");
    crash_at(&pool, "ask-answered");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    let mut approve = pool.poolctl();
    let mut approve = Talk::start(approve.args(["--timeout", "30s", "approve", &agent.id]));
    assert_eq!(pool.await_end(Program::Poold), 134, "{}", pool.logs());
    wait_until("the hook ends", PATIENCE, || agent.lines("hooks-ended") == ["0"]);
    assert_eq!(std::fs::read(agent.path("answer")).unwrap(), b"", "it was not told");
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    pool.await_complete();
    let shown = agent.await_activity("attention");
    assert_eq!(shown["ask"]["answerable"], false, "{shown}");
    agent.keys(&["Enter"]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
    assert_eq!(approve.await_end(), Some(CONFLICT), "{}", approve.errors());
    assert_eq!(pool.journal().matches("ask_answered").count(), 0, "not by approve");
}

#[test]
fn an_answer_is_given_once_the_agent_has_it_and_not_when_it_is_on_its_way() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    let hook = waiting_hook(&agent);
    send_signal(hook, Signal::SIGSTOP);
    wait_until("it stands still", PATIENCE, || is_stopped(hook));
    let answered = pool.ctl(&["approve", &agent.id]).expect(6);
    assert!(answered.stderr.contains("has not confirmed"), "{answered:?}");
    let again = pool.ctl(&["approve", &agent.id]).expect(CONFLICT);
    assert!(again.stderr.contains("was given an answer"), "{again:?}");
    send_signal(hook, Signal::SIGKILL);
    let shown = agent.await_activity("attention");
    assert_eq!(shown["ask"]["answerable"], false, "{shown}");
    agent.keys(&["Enter"]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
}

#[test]
fn an_answer_that_the_agent_takes_late_is_recorded_then() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    let hook = waiting_hook(&agent);
    send_signal(hook, Signal::SIGSTOP);
    wait_until("it stands still", PATIENCE, || is_stopped(hook));
    pool.ctl(&["approve", &agent.id]).expect(6);
    assert_eq!(agent.await_activity("attention")["ask"]["answerable"], false);
    send_signal(hook, Signal::SIGCONT);
    agent.await_state(&id, "done");
    wait_until("the answer is on record", PATIENCE, || pool.journal().matches("ask_answered").count() == 1);
    assert_eq!(agent.show()["ask"], json!(null));
}

/// A client attached until dropped.
#[track_caller]
fn attached(pool: &Pool, agent: &Agent<'_>) -> Talk {
    let shown = agent.show();
    let tmux = shown["tmux"]["session_id"].as_str().unwrap();
    Talk::attached(pool, tmux)
}

#[test]
fn whoever_attaches_to_codex_is_asked_there() {
    let pool = fakes::pool("");
    let agent = Agent::codex(&pool);
    let (id, _) = asked(&agent);
    let capture = || pool.ok(&["capture", &agent.id]);
    assert!(!capture().contains("Would you like to run"), "{}", capture());
    let client = attached(&pool, &agent);
    wait_until("the dialog is shown", PATIENCE, || capture().contains("Would you like to run"));
    agent.await_shown("not answerable", |shown| shown["ask"]["answerable"] == false);
    agent.keys(&["Enter"]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
    drop(client);
    // Claude Code shows its dialog anyway, and goes on waiting.
    let agent = Agent::claude(&pool);
    let (id, ask) = asked(&agent);
    let _client = attached(&pool, &agent);
    agent.await_shown("attached", |shown| shown["attached_clients"] == 1);
    pool.ok(&["approve", &agent.id, "--ask", &ask]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed from outside");
}

#[test]
fn a_request_that_nobody_waits_for_is_only_told() {
    let never = fakes::kind("never", "claude", "", "approve_wait = '0s'\n");
    let pool = fakes::pool(&never);
    let agent = Agent::new(&pool, "never");
    let id = agent.send("ASK me");
    let shown = agent.await_activity("attention");
    assert_eq!(shown["ask"]["answerable"], false);
    assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT);
    agent.keys(&["1"]);
    agent.await_state(&id, "done");
}

/// Pid of the hook that waits for the answer to this agent's request.
#[track_caller]
fn waiting_hook(agent: &Agent<'_>) -> u32 {
    let (program, _) = agent.pool.pane_pids(&agent.id);
    let waits = |pid: &u32| crate::harness::words(*pid).windows(6).any(|word| word == b"--wait");
    crate::harness::children(program).into_iter().find(waits).expect("a hook that waits")
}

#[test]
fn a_hook_that_is_killed_takes_its_request_with_it() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    crate::harness::send_signal(waiting_hook(&agent), Signal::SIGKILL);
    agent.await_shown("not answerable", |shown| shown["ask"]["answerable"] == false);
    agent.keys(&["1"]);
    agent.await_message(&id, Duration::from_secs(30), |message| message["state"] == "done");
}

#[test]
fn a_request_whose_hook_ended_while_poold_was_away_is_answered_at_the_terminal() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let (id, _) = asked(&agent);
    let hook = waiting_hook(&agent);
    // The stopped hook cannot leave a report, and no other report is waiting.
    agent.await_all_read();
    crate::harness::send_signal(hook, Signal::SIGSTOP);
    pool.kill9(Program::Poold);
    crate::harness::send_signal(hook, Signal::SIGKILL);
    assert_eq!(agent.spooled(), 0);
    pool.start(Program::Poold);
    pool.await_complete();
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["ask"]["answerable"]), (&json!("attention"), &json!(false)));
    assert_eq!(pool.ctl(&["approve", &agent.id]).code, CONFLICT);
    agent.keys(&["1"]);
    assert_eq!(agent.await_state(&id, "done")["result"], "allowed at the terminal");
    agent.assert_unharmed();
}
