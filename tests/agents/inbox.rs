//! The inbox: everything that waits for a person, each entry with the command to go on.

use serde_json::Value;

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, Pool, wait_until};

/// A session's inbox entries: kind and command.
fn inbox(pool: &Pool, session: &str) -> Vec<(String, String)> {
    let items = pool.lines(&["inbox"]);
    let of = items.iter().filter(|item| item["session"] == session);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of.map(|item| (text(&item["kind"]), text(&item["next"]))).collect()
}

#[track_caller]
fn await_item(pool: &Pool, session: &str, kind: &str) -> String {
    wait_until(kind, PATIENCE, || inbox(pool, session).iter().any(|(found, _)| found == kind));
    inbox(pool, session).into_iter().find(|(found, _)| found == kind).unwrap().1
}

#[test]
fn what_waits_for_a_person_is_listed_with_the_command_that_goes_on() {
    let pool = fakes::pool("");
    assert!(pool.ok(&["inbox"]).contains("nothing waits for you"));
    let (asks, altered, over) = (Agent::claude(&pool), Agent::codex(&pool), Agent::claude(&pool));
    asks.send("ASK me");
    let next = await_item(&pool, &asks.id, "permission");
    altered.send("ALTER\tthis");
    let resolve = await_item(&pool, &altered.id, "message");
    over.send("SLOW one");
    over.await_activity("busy");
    over.send("behind it");
    pool.ok(&["kill", &over.id]);
    let restart = await_item(&pool, &over.id, "over");
    assert_eq!(pool.status()["inbox"], 3);
    assert!(pool.ctl(&["status"]).stdout.contains("poolctl inbox"));
    let shown = pool.ok(&["inbox"]);
    assert!(shown.contains("touch made") && shown.contains(&next), "{shown}");
    // Each command that the inbox names works as printed.
    for command in [next, resolve.replace("'done|retry|dead'", "done"), restart] {
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        pool.ok(&words);
    }
    wait_until("nothing waits any more", PATIENCE, || pool.lines(&["inbox"]).is_empty());
    assert_eq!(pool.status()["inbox"], 0);
}
