//! The conversation of an agent: chosen by the pool or by the agent, resumed, or replaced by a new one.

use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, Pool, wait_until};

/// Parks the session and wakes it with a prompt.
#[track_caller]
fn parked_and_woken(agent: &Agent<'_>) {
    let pool = agent.pool;
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    assert_eq!(agent.tell("are you there?"), "done: are you there?");
}

#[test]
fn c05_an_agent_takes_up_the_conversation_that_it_had_when_it_was_parked() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        assert_eq!(agent.tell("hello"), "done: hello");
        let conversation = agent.conversation();
        assert_eq!(agent.show()["conversation"]["id"], conversation, "{kind}");
        for runs in 2..4 {
            parked_and_woken(&agent);
            assert_eq!(agent.lines("runs").len(), runs);
            assert_eq!(agent.lines("runs").last().unwrap(), &format!("resume {conversation}"));
            assert_eq!(agent.show()["conversation"]["id"], conversation);
        }
        agent.assert_no_hook_failed();
    }
}

#[test]
fn c05_a_conversation_that_was_never_begun_is_not_taken_up() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        parked_and_woken(&agent);
        let runs = agent.lines("runs");
        assert!(runs.len() == 2 && runs[1].starts_with("startup "), "{kind}: {runs:?}");
        assert_eq!(agent.show()["conversation"]["id"], agent.conversation());
        pool.ok(&["restart", "--fresh", &agent.id]);
        agent.await_activity("idle");
        let runs = agent.lines("runs");
        assert!(runs.len() == 3 && runs[2].starts_with("startup "), "{kind}: {runs:?}");
        assert_ne!(runs[1], runs[2]);
    }
}

#[test]
fn a_conversation_that_the_agent_was_told_to_begin_anew_is_the_one_from_then_on() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    assert_eq!(agent.tell("hello"), "done: hello");
    let first = agent.conversation();
    // A command of the agent's, which no prompt hook confirms.
    let id = pool.ok(&["send", "--raw", &agent.id, "/clear"]);
    agent.await_state(&id, "done");
    let second = format!("after-{first}");
    agent.await_shown("another conversation", |shown| shown["conversation"]["id"] == second);
    assert_eq!(agent.tell("hello again"), "done: hello again");
    parked_and_woken(&agent);
    assert_eq!(agent.lines("runs").last().unwrap(), &format!("resume {second}"));
    agent.assert_no_hook_failed();
}

#[test]
fn t23_a_soft_reset_gives_a_fresh_context_without_a_new_process_and_is_typed_once() {
    let pool = fakes::pool("");
    for (kind, command) in [("claude", "/clear"), ("codex", "/new")] {
        let agent = Agent::new(&pool, kind);
        assert_eq!(agent.tell("hello"), "done: hello");
        let (process, first) = (pool.pane_pids(&agent.id).0, agent.show()["conversation"]["id"].clone());
        let shown = pool.json(&["reset", "--soft", "--op-id", &format!("fresh-{kind}"), &agent.id]);
        assert_eq!(shown["id"], agent.id.as_str());
        assert_eq!(agent.prompts(), ["hello", command]);
        assert!(!pool.ok(&["logs", "--raw", &agent.id]).contains("hello"), "the log was emptied");
        assert_eq!(pool.pane_pids(&agent.id).0, process, "the same process");
        let now = agent.show()["conversation"].clone();
        assert_eq!(now["begun"], false, "{kind}: nothing to resume");
        assert_ne!(now["id"], first, "{kind}: told by its hook, or not known");
        pool.ok(&["reset", "--soft", "--op-id", &format!("fresh-{kind}"), &agent.id]);
        assert_eq!(agent.prompts().len(), 2, "a repeat types nothing");
        parked_and_woken(&agent);
        let runs = agent.lines("runs");
        assert!(runs[1].starts_with("startup "), "{kind}: the old conversation is not taken up: {runs:?}");
        agent.assert_unharmed();
    }
}

#[test]
fn t23_a_soft_reset_waits_for_an_idle_agent_and_outlives_poold() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.send("SLOW work");
    agent.await_activity("busy");
    std::thread::scope(|scope| {
        let reset = scope.spawn(|| pool.ok(&["reset", "--soft", &agent.id]));
        wait_until("the command waits", PATIENCE, || agent.show()["queue"]["queued"] == 1);
        pool.restart_poold();
        assert_eq!(agent.prompts(), ["SLOW work"]);
        agent.go();
        reset.join().unwrap();
    });
    assert_eq!(agent.prompts(), ["SLOW work", "/clear"]);
    agent.assert_unharmed();
}

#[test]
fn t23_a_reset_is_a_new_process_with_a_fresh_conversation_and_an_empty_log() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    assert_eq!(agent.tell("hello"), "done: hello");
    let (process, first) = (pool.pane_pids(&agent.id).0, agent.conversation());
    pool.ok(&["reset", &agent.id]);
    agent.await_activity("idle");
    let runs = agent.lines("runs");
    assert!(runs.len() == 2 && runs[1].starts_with("startup ") && !runs[1].ends_with(&first), "{runs:?}");
    assert_ne!(pool.pane_pids(&agent.id).0, process);
    assert!(!pool.ok(&["logs", "--raw", &agent.id]).contains("hello"), "the log was emptied");
    pool.ok(&["kill", &agent.id]);
    let refused = pool.ctl(&["reset", "--soft", &agent.id]).expect(5);
    assert!(refused.stderr.contains("does not run; `poolctl reset"), "{refused:?}");
    let shell = pool.ok(&["new", "--agent", "shell"]);
    let refused = pool.ctl(&["reset", "--soft", &shell]).expect(5);
    assert!(refused.stderr.contains("[agents.shell] clear"), "{refused:?}");
}

/// Bytes stored about sessions and their agents, without messages and journal.
#[track_caller]
fn kept(pool: &Pool) -> usize {
    let rows = pool.lines(&["export"]);
    let tables = ["sessions", "activities", "notes", "thoughts", "breakers"];
    let about = |row: &&Value| row["table"].as_str().is_some_and(|table| tables.contains(&table));
    let kept: Vec<String> = rows.iter().filter(about).map(ToString::to_string).collect();
    assert!(kept.len() >= 3, "{kept:?}");
    kept.concat().len()
}

#[test]
fn c06_an_agent_begins_with_nothing_and_what_is_kept_of_it_does_not_grow_with_what_is_said() {
    let pool = fakes::pool(&fakes::kind("late", "claude", "LATE = '1', ", ""));
    let agent = Agent::starting(&pool, "late", &[]);
    std::fs::write(agent.path("ready"), "").unwrap();
    agent.await_activity("idle");
    let fresh = agent.show();
    let counts = ["total_requests", "restarts"].map(|key| &fresh[key]);
    assert_eq!((counts, &fresh["queue"]["queued"]), ([&json!(0), &json!(0)], &json!(0)));
    for key in ["ask", "limited_until", "tokens", "skill", "thought", "waits"] {
        assert_eq!(fresh[key], json!(null), "{key}: {fresh}");
    }
    assert_eq!(
        (&fresh["queue"]["oldest_at"], &fresh["conversation"]["begun"]),
        (&json!(null), &json!(false))
    );
    // A long conversation leaves no more in the record than a single prompt does.
    agent.tell("hello");
    agent.await_activity("idle");
    let before = kept(&pool);
    for n in 0..6 {
        let text = format!("{n}{}", " and so on".repeat(400));
        agent.tell(&text);
        agent.await_activity("idle");
    }
    let after = kept(&pool);
    assert!(after < before + 100, "{before} bytes became {after}");
    // `oldest_at` is the oldest waiting message's time, while another one is being worked.
    let slow = agent.send_until("SLOW one", "accepted");
    let waiting = ["two", "three"].map(|text| agent.send(text));
    let shown = agent.show();
    assert_eq!((&shown["queue"]["queued"], &shown["activity"]), (&json!(2), &json!("busy")));
    assert_eq!(shown["queue"]["oldest_at"], agent.message(&waiting[0])["created_at"]);
    pool.ok(&["queue", "cancel", &agent.id, "--all"]);
    // A new run inherits nothing of what the previous one was doing.
    std::fs::remove_file(agent.path("ready")).unwrap();
    pool.ok(&["restart", "--no-block", &agent.id]);
    assert_eq!(pool.await_lifecycle(&agent.id, "live")["activity"], "unknown");
    std::fs::write(agent.path("ready"), "").unwrap();
    let next = agent.await_activity("idle");
    assert_ne!(next["generator"]["pid"], shown["generator"]["pid"]);
    assert!(next["activity_since"].as_str() > shown["activity_since"].as_str(), "{next}");
    assert_ne!(agent.state(&slow), "accepted");
    assert_eq!(agent.tell("and now?"), "done: and now?");
    wait_until("nothing is left", PATIENCE, || agent.show()["queue"]["oldest_at"] == json!(null));
}

#[test]
fn a_session_whose_first_prompt_was_cut_off_begins_anew() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    let lost = agent.show()["conversation"]["id"].clone();
    // The agent dies before it has written anything.
    agent.send("DIE");
    pool.await_lifecycle(&agent.id, "stopped");
    // `restart` returns once the new conversation has begun.
    pool.ok(&["restart", &agent.id]);
    let shown = agent.show();
    assert_eq!((&shown["lifecycle"], &shown["resumed"]), (&json!("live"), &json!(false)), "{shown}");
    assert_eq!(agent.tell("after it"), "done: after it");
    let told = agent.events("conversation_lost");
    assert_eq!((told.len(), &told[0]["conversation"]), (1, &lost), "{told:?}");
    let why = agent.show()["detail"].as_str().unwrap().to_owned();
    assert!(why.contains("began a new one (conversation_lost)"), "{why}");
    // The loss is recorded.
    pool.restart_poold();
    assert_eq!(agent.show()["detail"], why);
    // The new conversation exists and is resumed.
    parked_and_woken(&agent);
    assert_eq!(agent.show()["resumed"], true);
    assert_eq!(agent.events("conversation_lost").len(), 1);
    assert_eq!(agent.show()["detail"], json!(null));
}

#[test]
fn a_conversation_that_its_agent_has_cleaned_up_is_begun_anew_and_what_is_queued_is_worked() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        agent.tell("hello");
        let lost = agent.conversation();
        pool.ok(&["park", &agent.id]);
        pool.await_lifecycle(&agent.id, "parked");
        std::fs::remove_file(agent.path("conversations")).unwrap();
        assert_eq!(agent.tell("are you there?"), "done: are you there?", "{kind}");
        let told = agent.events("conversation_lost");
        assert_eq!((told.len(), &told[0]["conversation"]), (1, &json!(lost)), "{kind}: {told:?}");
        assert_ne!(agent.conversation(), lost);
        assert_eq!(agent.show()["resumed"], false);
    }
}

#[test]
fn an_agent_that_ends_for_another_reason_keeps_its_conversation() {
    let config = fakes::kind("failing", "claude", "FAIL = '1', ", "");
    let pool = fakes::pool(&config);
    let agent = Agent::new(&pool, "failing");
    agent.tell("hello");
    let conversation = agent.conversation();
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    std::fs::write(agent.path("fail"), "").unwrap();
    let failed = pool.ctl(&["restore", &agent.id]).expect(1);
    assert!(failed.stderr.contains("poolctl logs"), "{failed:?}");
    assert_eq!(agent.show()["conversation"]["id"], conversation);
    assert_eq!(agent.events("conversation_lost"), Vec::<Value>::new());
    std::fs::remove_file(agent.path("fail")).unwrap();
    pool.ok(&["restore", &agent.id]);
    assert_eq!((&agent.show()["resumed"], agent.conversation()), (&json!(true), conversation));
}

#[test]
fn who_wakes_a_session_is_answered_once_its_agent_has_begun() {
    let pool = fakes::pool(&fakes::kind("frail", "claude", "FAIL = '1', ", ""));
    let agent = Agent::new(&pool, "frail");
    agent.tell("hello");
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    let id = pool.ok(&["send", "--wake", &agent.id, "SLOW on"]);
    let shown = agent.show();
    assert_eq!(shown["lifecycle"], "live");
    assert_ne!(shown["activity"], "unknown", "{shown}");
    agent.await_state(&id, "accepted");
    agent.go();
    agent.await_state(&id, "done");
    // A failed start is reported, and the message stays queued.
    pool.ok(&["park", &agent.id]);
    pool.await_lifecycle(&agent.id, "parked");
    std::fs::write(agent.path("fail"), "").unwrap();
    let told = pool.ctl(&["send", "--wake", &agent.id, "not yet"]).expect(1);
    assert!(told.stderr.contains("poolctl logs"), "{told:?}");
    assert_eq!(agent.message(told.stdout.trim())["state"], "queued", "its id is printed all the same");
}
