//! Agents that have reached a usage limit.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, wait_until};

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Sends a prompt at which the agent reaches its limit; returns the message once it is dead.
#[track_caller]
fn limited(agent: &Agent<'_>, until: u64) -> Value {
    let id = agent.send(&format!("LIMIT {until}"));
    agent.await_state(&id, "dead")
}

#[test]
fn a_limit_is_an_error_for_as_long_as_the_agent_says_and_holds_prompts_back() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        pool.ok(&["pin", &agent.id]);
        let dead = limited(&agent, now() + 3600);
        assert!(dead["reason"].as_str().unwrap().contains("limit"), "{dead}");
        pool.ctl(&["wait", &agent.id, "--for", "error"]).expect(0);
        let shown = agent.await_shown("limited", |shown| shown["limited_until"].is_string());
        assert_eq!(shown["activity"], "error");
        let id = agent.send("and now?");
        let shown = agent.await_shown("waiting", |shown| shown["waits"].is_string());
        let why = shown["waits"].as_str().unwrap();
        assert!(why.contains("reached its usage limit"), "{why}");
        assert_eq!(agent.state(&id), "queued");
        assert_eq!(agent.prompts().len(), 1, "{kind}");
        // The session is pinned: no other session gets its slot, however long it waits.
        wait_until("it will be told to go on", PATIENCE, || {
            pool.lines(&["queue", "ls", &agent.id, "--state", "queued"]).len() == 2
        });
        assert_eq!(agent.show()["lifecycle"], "live", "{kind}");
    }
}

#[test]
fn the_slot_of_one_that_is_limited_goes_to_others_and_it_waits_for_its_time() {
    let pool = fakes::pool("");
    for kind in ["claude", "codex"] {
        let agent = Agent::new(&pool, kind);
        limited(&agent, now() + 3600);
        let shown = pool.await_lifecycle(&agent.id, "parked");
        assert_eq!(shown["reason"], "limited", "{shown}");
        wait_until("its slot is free", PATIENCE, || pool.status()["slots"]["used"] == 0);
        let waiting = pool.lines(&["queue", "ls", &agent.id, "--state", "queued"]);
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        assert_eq!(waiting[0]["origin"], "pool:limit");
        assert!(waiting[0]["not_before"].is_string(), "{waiting:?}");
        assert_eq!(agent.lines("runs").len(), 1, "nothing wakes it before");
        // A user may restore it earlier; it keeps its conversation.
        pool.ok(&["restore", &agent.id]);
        wait_until("it runs again", PATIENCE, || agent.lines("runs").len() == 2);
        assert!(agent.lines("runs")[1].starts_with("resume "));
        pool.ok(&["rm", &agent.id, "--force"]);
    }
}

#[test]
fn an_offer_that_comes_with_a_limit_is_declined_by_itself_and_the_prompts_go_on() {
    let pool = fakes::pool("");
    let agent = Agent::codex(&pool);
    pool.ok(&["pin", &agent.id]);
    agent.send(&format!("OFFER {}", now() + 2));
    agent.send_until("next", "done");
    assert_eq!(agent.prompts().last().unwrap(), "next");
    assert_eq!(agent.lines("chosen"), Vec::<String>::new(), "by Escape");
}

#[test]
fn an_offer_that_is_left_to_a_person_is_asked_and_answered_by_its_number() {
    let asking = fakes::kind("asking", "codex", "", "dialogs = { usage_limit = [] }");
    let pool = fakes::pool(&asking);
    let agent = Agent::new(&pool, "asking");
    pool.ok(&["pin", &agent.id]);
    agent.send(&format!("OFFER {}", now() + 2));
    let id = agent.send("next");
    let shown = agent.await_activity("attention");
    assert_eq!((&shown["ask"]["kind"], &shown["activity_detail"]), (&json!("dialog"), &json!("usage_limit")));
    let refused = pool.ctl(&["approve", &agent.id]).expect(4);
    assert!(refused.stderr.contains("--answer N"), "{refused:?}");
    let refused = pool.ctl(&["approve", &agent.id, "--answer", "7"]).expect(4);
    assert!(refused.stderr.contains("2 (Keep current model)"), "{refused:?}");
    let inbox = pool.lines(&["inbox"]);
    assert!(inbox[0]["next"].as_str().unwrap().ends_with("--answer N"), "{inbox:?}");
    pool.ok(&["approve", &agent.id, "--answer", "2"]);
    assert_eq!(agent.lines("chosen"), ["2"]);
    agent.await_state(&id, "done");
}

#[test]
fn it_is_told_to_go_on_once_when_its_time_has_come_and_not_again_before_it_has_finished_a_turn() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    limited(&agent, now() + 4);
    wait_until("it is told to go on", PATIENCE, || agent.prompts().get(1).is_some_and(|p| p == "continue"));
    let all = pool.lines(&["queue", "ls", &agent.id]);
    let told: Vec<_> = all.iter().filter(|message| message["origin"] == "pool:limit").collect();
    assert_eq!(told.len(), 1, "{all:?}");
    agent.await_state(&told[0]["id"].to_string(), "done");
    assert_eq!(agent.await_activity("idle")["limited_until"], json!(null));
    assert_eq!(agent.tell("thanks"), "done: thanks");
    // After a completed turn, the next limit is followed by another `continue`.
    limited(&agent, now() + 4);
    wait_until("again", PATIENCE, || agent.prompts().len() == 5);
    assert_eq!((agent.prompts()[4].as_str(), agent.pastes().len()), ("continue", 5));
    agent.assert_no_hook_failed();
}

#[test]
fn a_limit_that_is_over_before_anybody_looked_is_followed_up_too() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    limited(&agent, now() - 60);
    wait_until("it is told to go on", PATIENCE, || agent.prompts().get(1).is_some_and(|p| p == "continue"));
}

#[test]
fn q06_what_tells_it_to_go_on_is_not_typed_again_by_the_next_poold() {
    let pool = fakes::pool(&fakes::kind("lossy", "claude", "", "go_on = 'LOST'"));
    let agent = Agent::new(&pool, "lossy");
    limited(&agent, now() - 60);
    wait_until("it is told to go on", PATIENCE, || agent.prompts().len() == 2);
    let all = pool.lines(&["queue", "ls", &agent.id]);
    let told = all.iter().find(|message| message["origin"] == "pool:limit").unwrap()["id"].to_string();
    agent.await_state(&told, "typed");
    for _ in 0..2 {
        pool.restart_poold();
        // Once another session was served, this `poold` has looked at the agent too.
        let other = pool.script("other", "exec cat");
        pool.ok(&["send", &other, "--wait", "done", "text"]);
        pool.ok(&["rm", "--force", &other]);
        assert_eq!((agent.state(&told).as_str(), agent.prompts().len()), ("typed", 2));
    }
}

#[test]
fn a_limit_that_is_lifted_early_keeps_nobody_waiting() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    pool.ok(&["pin", &agent.id]);
    limited(&agent, now() + 3600);
    agent.await_shown("limited", |shown| shown["limited_until"].is_string());
    wait_until("what it will be told waits", PATIENCE, || {
        !pool.lines(&["queue", "ls", &agent.id, "--state", "queued"]).is_empty()
    });
    let id = agent.send("next");
    // Its user logs in with another account and goes on.
    agent.keys(&["m", "i", "n", "e"]);
    agent.keys(&["Enter"]);
    agent.await_state(&id, "done");
    let told = pool.lines(&["queue", "ls", &agent.id, "--state", "cancelled"]);
    assert_eq!((told.len(), &told[0]["origin"]), (1, &json!("pool:limit")));
    assert_eq!(agent.prompts()[1..], ["mine", "next"]);
}

#[test]
fn one_that_meets_its_limit_again_at_once_is_told_again_when_that_is_over_and_not_before() {
    let second = now() + 3600;
    let again = fakes::kind("again", "claude", "", &format!("go_on = 'LIMIT {second}'\n"));
    let pool = fakes::pool(&again);
    let (agent, other) = (Agent::new(&pool, "again"), Agent::claude(&pool));
    pool.ok(&["pin", &agent.id, &other.id]);
    limited(&agent, now() + 4);
    wait_until("it is told to go on", PATIENCE, || agent.prompts().len() == 2);
    agent.await_shown("limited again", |shown| shown["limited_until"].is_string());
    // The other agent reaches a limit later and is to be told to go on.
    limited(&other, second);
    let told = |agent: &Agent<'_>| {
        let all = pool.lines(&["queue", "ls", &agent.id]);
        all.iter().filter(|message| message["origin"] == "pool:limit").count()
    };
    wait_until("the other one is to be told", PATIENCE, || told(&other) == 1);
    assert_eq!((told(&agent), agent.prompts().len()), (2, 2));
}
