//! Prompts reach agents as they were written, once, in order, when the agent waits for one; and each ends.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, Pool, send_signal, wait_until};

/// States that a message went through.
fn steps(message: &Value) -> Vec<&str> {
    message["history"].as_array().unwrap().iter().map(|step| step["state"].as_str().unwrap()).collect()
}

#[test]
fn a_prompt_arrives_as_it_was_written_is_accepted_and_ends_with_the_agents_words() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let long = "0123456789 ".repeat(4000);
        for text in ["two lines: $HOME \"quoted\" #{pane_id} -x\n\twith é \\ and % done;", &long] {
            assert_eq!(agent.tell(text).trim_end(), format!("done: {text}").trim_end(), "{kind}");
        }
        let id = agent.send("the last one");
        let message = agent.await_state(&id, "done");
        let mut steps = steps(&message);
        // A hook may arrive before `typed` is recorded.
        steps.retain(|step| *step != "typed");
        assert_eq!(steps, ["queued", "typing", "accepted", "done"], "{message}");
        assert!(message["accepted_at"].is_string(), "{message}");
        assert_eq!((agent.prompts().len(), agent.enters()), (3, 3), "{kind}");
        assert_eq!(agent.show()["total_requests"], 3);
        agent.assert_unharmed();
    }
}

#[test]
fn w16_what_each_agent_is_told_at_its_start_is_its_first_prompt() {
    let pool = fakes::pool("");
    for (kind, context) in [("claude", 200_000), ("codex", 192_000)] {
        let prompt = "fix Bob's tmux startup";
        let agent = Agent::starting(&pool, kind, &["--prompt", prompt]);
        agent.await_prompts(&[prompt]);
        let sent = pool.lines(&["queue", "ls", &agent.id]);
        assert_eq!(sent.len(), 1, "{sent:?}");
        agent.await_state(&sent[0]["id"].to_string(), "done");
        agent.await_prompts(&[prompt]);
        let shown = agent.show();
        assert_eq!((&shown["agent"], &shown["context_limit"]), (&json!(kind), &json!(context)));
        assert!(!shown["command"].to_string().contains("Bob"), "{shown}");
        agent.assert_unharmed();
    }
}

#[test]
fn a_second_prompt_waits_with_its_reason_and_is_typed_at_the_end_of_the_turn() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let one = agent.send_until("SLOW one", "accepted");
        assert_eq!(agent.await_activity("busy")["activity_source"], "hook");
        let two = agent.send("two");
        let shown = agent.await_shown("waiting with a reason", |shown| shown["waits"].is_string());
        let why = shown["waits"].as_str().unwrap();
        let listed = pool.ok(&["queue", "ls", &agent.id]);
        assert!(listed.contains(why), "{why}: {listed}");
        assert_eq!(agent.state(&two), "queued");
        agent.go();
        agent.await_state(&two, "done");
        assert_eq!(agent.message(&one)["result"], "done: SLOW one");
        assert_eq!(agent.prompts(), ["SLOW one", "two"]);
        assert_eq!(agent.await_activity("idle")["waits"], json!(null));
        agent.assert_unharmed();
    }
}

#[test]
fn five_prompts_at_once_are_typed_one_by_one_in_their_order() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let texts = ["SLOW first", "second", "TOOL third", "fourth", "fifth"];
        let ids = texts.map(|text| agent.send(text));
        agent.await_state(&ids[0], "accepted");
        agent.go();
        ids.iter().for_each(|id| drop(agent.await_state(id, "done")));
        assert_eq!(agent.prompts(), texts);
        assert_eq!(agent.message(&ids[2])["result"], "used it twice");
        agent.assert_unharmed();
    }
}

#[test]
fn an_agent_that_is_not_ready_is_not_typed_to() {
    let late = fakes::kind("late", "claude", "LATE = '1', ", "");
    let pool = fakes::pool(&late);
    let agent = Agent::starting(&pool, "late", &[]);
    let id = agent.send("hello");
    let shown = agent.await_shown("waiting", |shown| shown["waits"].is_string());
    assert_eq!(shown["waits"], "its agent is not ready yet");
    assert_eq!(shown["activity"], "unknown");
    assert_eq!(agent.pastes(), [""; 0]);
    std::fs::write(agent.path("ready"), "").unwrap();
    agent.await_state(&id, "done");
    agent.assert_unharmed();
}

#[test]
fn an_enter_that_the_agent_swallows_is_pressed_again_and_the_text_is_not_typed_again() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        assert_eq!(agent.tell("SWALLOW this"), "done: SWALLOW this", "{kind}");
        assert_eq!((agent.pastes(), agent.enters()), (vec!["SWALLOW this".to_owned()], 2), "{kind}");
        agent.assert_unharmed();
    }
}

#[test]
fn a_prompt_that_was_typed_a_moment_ago_is_not_typed_anew_by_a_user() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("STUCK here", "typed");
    let refused = pool.ctl(&["queue", "resolve", &agent.id, &id, "--as", "retry"]);
    assert!(refused.code == 4 && refused.stderr.contains("may still take it"), "{refused:?}");
    assert_eq!(agent.pastes(), ["STUCK here"]);
    pool.ok(&["queue", "resolve", &agent.id, &id, "--as", "dead"]);
}

/// Kills an agent in the middle of its turn.
#[track_caller]
fn kill_agent(pool: &Pool, agent: &Agent<'_>) {
    let (program, _) = pool.pane_pids(&agent.id);
    send_signal(program, Signal::SIGKILL);
}

#[test]
fn an_agent_that_dies_with_a_prompt_ends_it_and_the_queue_goes_on_with_the_next_one() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        let one = agent.send_until("SLOW one", "accepted");
        let two = agent.send("two");
        kill_agent(&pool, &agent);
        let dead = agent.await_state(&one, "dead");
        assert_eq!(dead["reason_code"], "agent_ended");
        pool.await_lifecycle(&agent.id, "stopped");
        assert_eq!(agent.state(&two), "queued");
        pool.ok(&["restart", &agent.id]);
        agent.await_state(&two, "done");
        assert_eq!(agent.prompts(), ["SLOW one", "two"], "never the first one again");
        assert_eq!(agent.lines("runs").len(), 2);
        agent.assert_unharmed();
    }
}

#[test]
fn an_agent_that_dies_of_a_prompt_before_it_takes_it_ends_it() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send("DIE of this");
    let dead = agent.await_state(&id, "dead");
    assert_eq!(dead["reason_code"], "agent_ended_unconfirmed");
    pool.ok(&["restart", &agent.id]);
    assert_eq!(agent.tell("and you?"), "done: and you?");
    assert_eq!(agent.prompts(), ["DIE of this", "and you?"]);
}

#[test]
fn a_turn_that_fails_ends_its_prompt_and_is_an_error() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send("ERROR please");
    let dead = agent.await_state(&id, "dead");
    assert_eq!(dead["reason"], "the agent's turn failed: unknown: it broke");
    pool.ctl(&["wait", &agent.id, "--for", "error"]).expect(0);
    pool.ctl(&["wait", &agent.id, "--for", "attention,error"]).expect(11);
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["activity_source"]), (&json!("error"), &json!("hook")));
    assert_eq!(shown["activity_detail"], "unknown: it broke");
    // After a failed turn the agent takes the next prompt.
    assert_eq!(agent.tell("go on"), "done: go on");
    agent.assert_unharmed();
}

#[test]
fn an_outage_holds_the_lane_and_the_agent_is_told_to_go_on_until_it_is_over() {
    let pool = fakes::pool("[queue]\nbreaker_pause = '300ms'\n");
    let agent = Agent::claude(&pool);
    agent.tell("hello");
    std::fs::write(agent.path("outage"), "").unwrap();
    let ids = ["1 refactor", "2 commit", "3 push"].map(|text| agent.send(text));
    agent.await_shown("it says why the next one waits", |shown| {
        shown["waits"].as_str().is_some_and(|why| why.contains("API Error: 500 out"))
    });
    wait_until("it is told to go on", PATIENCE, || agent.prompts().contains(&"continue".to_owned()));
    // The outage outlasts restarts of `poold` and of the agent.
    pool.restart_poold();
    pool.ok(&["restart", &agent.id]);
    let asked = agent.prompts().len();
    wait_until("it is told so again", PATIENCE, || agent.prompts().len() > asked);
    std::fs::remove_file(agent.path("outage")).unwrap();
    for id in &ids {
        agent.await_state(id, "done");
    }
    assert_eq!(agent.message(&ids[0])["result"], "done: continue");
    let mut prompts = agent.prompts();
    prompts.dedup();
    assert_eq!(prompts, ["hello", "1 refactor", "continue", "2 commit", "3 push"]);
}

#[test]
fn an_interruption_that_a_hook_tells_of_ends_the_prompt_at_once() {
    let pool = fakes::pool("");
    let agent = Agent::codex(&pool);
    let id = agent.send_until("SLOW work", "accepted");
    agent.keys(&["Escape"]);
    assert_eq!(agent.await_state(&id, "dead")["reason"], "interrupted");
    assert_eq!(agent.show()["activity"], "idle");
    assert_eq!(agent.tell("next"), "done: next");
    agent.assert_unharmed();
}

#[test]
fn an_interruption_that_only_the_agents_record_tells_of_ends_the_prompt() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("SLOW work, NOTED", "accepted");
    agent.keys(&["Escape"]);
    assert_eq!(agent.await_state(&id, "dead")["reason"], "interrupted");
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["activity_source"]), (&json!("idle"), &json!("transcript")));
    assert_eq!(agent.tell("next"), "done: next");
    agent.assert_unharmed();
}

#[test]
fn an_interruption_that_nothing_tells_of_is_seen_on_the_screen_after_a_silence() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send_until("SLOW work", "accepted");
    agent.keys(&["Escape"]);
    assert_eq!(agent.await_state(&id, "dead")["reason"], "interrupted");
    let shown = agent.show();
    assert_eq!((&shown["activity"], &shown["activity_source"]), (&json!("idle"), &json!("screen")));
    assert_eq!(agent.tell("next"), "done: next");
    agent.assert_unharmed();
}

#[test]
fn an_interrupted_prompt_is_sent_again_where_that_is_configured() {
    let again = fakes::kind("again", "codex", "", "on_interrupted = 'retry'\n");
    let pool = fakes::pool(&again);
    let agent = Agent::new(&pool, "again");
    let id = agent.send_until("SLOW work", "accepted");
    agent.keys(&["Escape"]);
    agent.await_prompts(&["SLOW work", "SLOW work"]);
    agent.await_state(&id, "accepted");
    agent.go();
    assert_eq!(agent.await_state(&id, "done")["result"], "done: SLOW work");
    wait_until("twice and no more", PATIENCE, || agent.show()["activity"] == "idle");
    assert_eq!(agent.pastes().len(), 2);
}

#[test]
fn what_is_typed_after_a_wake_waits_until_the_agent_takes_pastes() {
    let late = fakes::kind("late", "claude", "LATE_PASTES = '1', ", "");
    let pool = fakes::pool(&late);
    let agent = Agent::new(&pool, "late");
    agent.tell("hello");
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    let id = agent.send("tab\there");
    // The start hook of the agent, which says that it waits for a prompt, was received; pastes are not enabled yet.
    agent.await_shown("it does not take pastes yet", |shown| {
        shown["waits"].as_str().is_some_and(|why| why.contains("does not take pastes yet"))
    });
    std::fs::write(agent.path("pastes-taken"), "").unwrap();
    assert_eq!(agent.await_state(&id, "done")["result"], "done: tab\there");
    agent.await_prompts(&["hello", "tab\there"]);
    agent.assert_unharmed();
}

#[test]
fn what_arrived_altered_is_told_and_holds_its_lane() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let id = agent.send("ALTER\tthis");
    let message = agent.await_state(&id, "in_doubt");
    assert_eq!(message["reason"], "altered: its agent got \"ALTERthis\"");
    let behind = agent.send("behind it");
    let shown = agent.await_activity("attention");
    assert_eq!(shown["ask"]["kind"], "message");
    assert!(shown["waits"].as_str().unwrap().contains("queue resolve"), "{shown}");
    assert_eq!(agent.state(&behind), "queued");
    pool.ok(&["queue", "resolve", &agent.id, &id, "--as", "done"]);
    agent.await_state(&behind, "done");
    agent.await_prompts(&["ALTERthis", "behind it"]);
}
