//! Attention that ends: a bell by whoever comes, a question by its answer alone; and `dismiss`.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::fakes::{self, Agent};
use crate::harness::{PATIENCE, Pool, Program, Talk, wait_until};

/// Kinds of the inbox entries of a session.
fn inbox(pool: &Pool, session: &str) -> Vec<Value> {
    let items = pool.lines(&["inbox"]).into_iter();
    items.filter(|item| item["session"] == session).map(|item| item["kind"].clone()).collect()
}

#[track_caller]
fn await_inbox(pool: &Pool, session: &str, kinds: &[&str]) {
    wait_until(&format!("it waits for {kinds:?}"), PATIENCE, || inbox(pool, session) == kinds);
}

/// A program without prompt marks that rings the bell whenever it reads a line, and writes nothing else.
fn ringer(pool: &Pool, name: &str) -> String {
    let id = pool.script(name, "stty -echo; printf '\\a'; while read -r line; do printf '\\a'; done");
    await_inbox(pool, &id, &["bell"]);
    id
}

fn rings_again(pool: &Pool, id: &str) {
    pool.tmux_text(&["send-keys", "-t", pool.show(id)["tmux"]["pane_id"].as_str().unwrap(), "Enter"]);
    await_inbox(pool, id, &["bell"]);
}

#[test]
fn a_bell_ends_when_somebody_comes_and_never_holds_a_wait_for_idle() {
    let pool = Pool::with("[pool]\nidle_quiet = '300ms'\n[reaper]\ngrace = '300ms'\n");
    let id = ringer(&pool, "ringer");
    // The program is idle while its bell rings.
    pool.ok(&["wait", &id, "--for", "idle"]);
    assert_eq!(pool.show(&id)["activity"], "attention", "and rings on");
    // Somebody attaches, and leaves again.
    drop(Talk::attached(&pool, "=ringer:"));
    let attached = Talk::attached(&pool, "=ringer:");
    await_inbox(&pool, &id, &[]);
    drop(attached);
    wait_until("nobody is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 0);
    rings_again(&pool, &id);
    // Somebody dismisses it: at once, and only this one.
    let dismissed = pool.json(&["dismiss", &id]);
    assert_eq!((&dismissed["activity"], &dismissed["ask"]), (&json!("idle"), &Value::Null), "{dismissed}");
    assert!(inbox(&pool, &id).is_empty() && pool.status()["asking"] == json!([]));
    pool.ok(&["dismiss", &id]);
    rings_again(&pool, &id);
    pool.ctl(&["dismiss", "nobody"]).expect(3);
}

/// What is on record is not older than 2 s: a bell that was answered in the last 2 s may ask again.
#[test]
fn a_restart_of_the_daemon_changes_no_bell() {
    let pool = Pool::with("[pool]\nidle_quiet = '300ms'\n[reaper]\ngrace = '300ms'\n");
    let (answered, rung) = (ringer(&pool, "answered"), Instant::now());
    pool.ok(&["dismiss", &answered]);
    wait_until("the bell is old", PATIENCE, || rung.elapsed() > Duration::from_secs(3));
    let open = ringer(&pool, "open");
    let asked = pool.show(&open)["ask"]["id"].clone();
    pool.restart_poold();
    // A round of samples that reads this one reads all.
    ringer(&pool, "later");
    assert_eq!((inbox(&pool, &answered), inbox(&pool, &open)), (vec![], vec![json!("bell")]));
    assert_eq!(pool.show(&open)["ask"]["id"], asked, "it is the same bell");
    assert_eq!(pool.show(&answered)["activity"], "idle");
    // A bell that was rung while the daemon did not run.
    let pane = pool.show(&answered)["tmux"]["pane_id"].as_str().unwrap().to_owned();
    pool.end(Program::Poold, Signal::SIGTERM);
    pool.tmux_text(&["send-keys", "-t", &pane, "Enter"]);
    let log = pool.state().join(format!("sessions/{answered}/logs/output.log"));
    wait_until("it rings", PATIENCE, || std::fs::read(&log).unwrap() == b"\x07\x07");
    pool.start_poold();
    await_inbox(&pool, &answered, &["bell"]);
}

#[test]
fn the_bell_of_an_earlier_run_rings_for_no_later_one() {
    let pool = Pool::with("[pool]\nidle_quiet = '300ms'\n[reaper]\ngrace = '300ms'\n");
    let id = pool.script("web", "[ -e rang ] || { : >rang; printf '\\a'; }; echo ready; exec cat");
    await_inbox(&pool, &id, &["bell"]);
    pool.ok(&["restart", &id]);
    wait_until("its silence is seen", PATIENCE, || {
        let shown = pool.show(&id);
        (&shown["activity_source"], &shown["activity"]) == (&json!("output"), &json!("idle"))
    });
    assert!(inbox(&pool, &id).is_empty());
}

#[test]
fn a_bell_ends_when_keys_or_a_prompt_are_typed() {
    let pool = Pool::with("[pool]\nidle_quiet = '300ms'\n[reaper]\ngrace = '300ms'\n");
    for (name, typed) in
        [("keys", &["keys", "keys", "x"][..]), ("prompt", &["send", "prompt", "--wait", "done", "x"])]
    {
        let id = pool.script(name, "stty raw -echo; printf '\\a'; exec cat >/dev/null");
        await_inbox(&pool, &id, &["bell"]);
        pool.ok(typed);
        await_inbox(&pool, &id, &[]);
        assert_eq!(pool.show(&id)["ask"], Value::Null);
    }
}

#[test]
fn a_question_is_dismissed_once_and_stays_open_until_it_is_answered() {
    let pool = fakes::pool("");
    let agent = Agent::claude(&pool);
    agent.send("ASK me");
    await_inbox(&pool, &agent.id, &["permission"]);
    // Attaching and dismissing are no answers.
    let attached = Talk::attached(&pool, pool.show(&agent.id)["tmux"]["pane_id"].as_str().unwrap());
    wait_until("somebody is attached", PATIENCE, || pool.show(&agent.id)["attached_clients"] == 1);
    assert_eq!(inbox(&pool, &agent.id), ["permission"]);
    drop(attached);
    pool.ok(&["dismiss", &agent.id, "--op-id", "one"]);
    assert!(inbox(&pool, &agent.id).is_empty());
    assert_eq!(pool.status()["inbox"], 0);
    let shown = pool.show(&agent.id);
    assert_eq!((&shown["activity"], &shown["ask"]["kind"]), (&json!("attention"), &json!("permission")));
    pool.ok(&["approve", &agent.id]);
    pool.ok(&["wait", &agent.id, "--for", "idle"]);
    // The next occurrence is another one.
    agent.send("ASK me");
    await_inbox(&pool, &agent.id, &["permission"]);
    // A message in doubt is resolved, not dismissed.
    let other = Agent::codex(&pool);
    other.send("ALTER\tthis");
    await_inbox(&pool, &other.id, &["message"]);
    let refused = pool.ctl(&["dismiss", &other.id]).expect(4);
    assert!(refused.stderr.contains("queue resolve"), "{}", refused.stderr);
}
