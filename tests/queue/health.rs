//! Messages that stand still are seen: by `status`, in the journal, in `stats`; and where a claim ends.

use serde_json::{Value, json};

use super::support::{Client, events, held, pool, send, session, shown};
use crate::harness::{PATIENCE, Pool, wait_until};

const SOON: &str = "[queue]\nstuck_after = '1s'\n[pool]\nidle_quiet = '1ms'\nidle_settle = '100ms'\n";

/// The lanes that `status` tells: kind and the code of the reason.
fn stuck(pool: &Pool) -> Vec<(String, String)> {
    let text = |lane: &Value, key: &str| lane[key].as_str().unwrap().to_owned();
    let status = pool.status();
    let lanes = status["stuck"].as_array().unwrap();
    lanes.iter().map(|lane| (text(lane, "kind"), text(lane, "reason_code"))).collect()
}

#[track_caller]
fn await_stuck(pool: &Pool, kind: &str, code: &str) {
    let wanted = (kind.to_owned(), code.to_owned());
    wait_until(&format!("{kind} stands still: {code}"), PATIENCE, || stuck(pool).contains(&wanted));
}

/// The events of stuck lanes in the journal: kind of the event, kind of messages, code of the reason.
fn told(pool: &Pool) -> Vec<[String; 3]> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |event: &Value| {
        let code = if event["kind"] == "queue_stuck" { &event["reason_code"] } else { &event["reason"] };
        [text(&event["kind"]), text(&event["message_kind"]), text(code)]
    };
    events(pool, &["queue_stuck", "queue_unstuck"]).iter().map(of).collect()
}

#[track_caller]
fn await_told(pool: &Pool, expected: &[[&str; 3]]) {
    wait_until(&format!("{expected:?} is told"), PATIENCE, || told(pool) == expected);
}

#[test]
fn c14_messages_without_a_worker_make_a_pool_unhealthy_are_told_once_and_again_when_they_move() {
    let pool = Pool::with(SOON);
    session(&pool, "web");
    assert_eq!(pool.ctl(&["status"]).code, 0);
    (0..3).for_each(|n| drop(send(&pool, "build", &format!("{n}"))));
    await_stuck(&pool, "build", "no_worker");
    let status = pool.ctl(&["status"]);
    assert_eq!(status.code, 1);
    let problem = " s: no worker is registered for them: `poolctl work web --kind build -- …`";
    assert!(status.stdout.contains("3 messages of kind build for web stand still for "), "{}", status.stdout);
    assert!(status.stdout.contains(problem), "{}", status.stdout);
    await_told(&pool, &[["queue_stuck", "build", "no_worker"]]);
    let event = &events(&pool, &["queue_stuck"])[0];
    assert_eq!((&event["waiting"], &event["session"]), (&json!(3), &json!("sess_1")), "{event}");
    let stats = pool.lines(&["stats"]);
    assert_eq!(
        (&stats[0]["stuck"][0]["kind"], &stats[0]["stuck"][0]["waiting"]),
        (&json!("build"), &json!(3))
    );
    assert!(pool.ok(&["stats"]).lines().nth(1).unwrap().ends_with(" build"));
    let inbox = pool.lines(&["inbox"]);
    assert_eq!(inbox[0]["kind"], "worker", "{inbox:?}");
    // A restart is no news.
    for _ in 0..2 {
        pool.restart_poold();
        await_stuck(&pool, "build", "no_worker");
    }
    assert_eq!(told(&pool).len(), 1);
    // Another lane of the session moves, which does not move this one. This one moves when its first message is
    // claimed.
    let mut client = Client::new(&pool);
    client.send("other", b"x");
    client.take(&["other"]).unwrap();
    let claimed = client.take(&["build"]).unwrap();
    let moved = ["queue_unstuck", "build", "moved"];
    await_told(&pool, &[["queue_stuck", "build", "no_worker"], moved]);
    client.ack(held(&claimed)).unwrap();
    pool.ok(&["queue", "cancel", "web", "--all", "--kind", "build"]);
    wait_until("it is healthy", PATIENCE, || stuck(&pool).is_empty());
}

#[test]
fn c14_stats_names_what_stands_still_in_a_session_that_does_not_run() {
    let pool = Pool::with(SOON);
    session(&pool, "web");
    session(&pool, "runs");
    send(&pool, "build", "nobody works it");
    await_stuck(&pool, "build", "no_worker");
    pool.ok(&["kill", "web"]);
    pool.await_lifecycle("web", "stopped");
    let stats = pool.lines(&["stats"]);
    let lanes: Vec<_> = stats.iter().map(|line| (&line["name"], &line["stuck"][0]["kind"])).collect();
    assert_eq!(lanes, [(&json!("web"), &json!("build")), (&json!("runs"), &json!(null))]);
}

#[test]
fn c14_a_worker_that_claims_nothing_hides_nothing() {
    let pool = pool(SOON);
    let mut busy = Client::generator(&pool, &["build"]);
    send(&pool, "build", "worked for long");
    busy.take(&["build"]).unwrap();
    let mut silent = Client::generator(&pool, &["stale"]);
    send(&pool, "stale", "nobody asks for it");
    await_stuck(&pool, "stale", "no_claim");
    assert!(stuck(&pool).iter().all(|(kind, _)| kind != "build"), "a message under a lease is in work");
    silent.take(&["stale"]).unwrap();
    wait_until("it moves", PATIENCE, || stuck(&pool).is_empty());
}

#[test]
fn c14_prompts_that_wait_are_told_with_the_reason_and_on_purpose_they_are_not() {
    let pool = Pool::with(SOON);
    session(&pool, "web");
    pool.script("reads", "exec cat");
    let pane = pool.show("reads")["tmux"]["pane_id"].as_str().unwrap().to_owned();
    pool.tmux(&["copy-mode", "-t", &pane]).expect(0);
    let id = pool.ok(&["send", "reads", "hello"]);
    await_stuck(&pool, "prompt", "prompt_waits");
    let lane = pool.status()["stuck"][0].clone();
    assert_eq!((&lane["name"], &lane["reason"]), (&json!("reads"), &json!("it is in copy mode")), "{lane}");
    // `web` sleeps: what is typed is not read.
    send(&pool, "prompt", "hello");
    await_stuck(&pool, "prompt", "unconfirmed");
    pool.tmux(&["send-keys", "-t", &pane, "-X", "cancel"]).expect(0);
    wait_until("it is typed", PATIENCE, || pool.json(&["queue", "show", "reads", &id])["state"] == "done");
    wait_until("one is left", PATIENCE, || stuck(&pool).len() == 1);
    pool.ok(&["kill", "web"]);
    wait_until("none is left", PATIENCE, || stuck(&pool).is_empty());
}

#[test]
fn a_claim_says_when_its_lease_ends_and_a_heartbeat_moves_that() {
    let pool = pool("[queue]\nlease = '1h'\n");
    let id = send(&pool, "build", "x");
    let mut worker = Client::generator(&pool, &["build"]);
    assert_eq!(shown(&pool, &id)["claim"], Value::Null);
    let claimed = worker.take(&["build"]).unwrap();
    let event = events(&pool, &["message_claimed"]).remove(0);
    let deadline = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
    let first = deadline(&event["holder"]["deadline_at"]);
    assert!(first > deadline(&event["at"]), "{event}");
    let of_show = || deadline(&shown(&pool, &id)["claim"]["deadline_at"]);
    let of_list = || deadline(&pool.lines(&["queue", "ls", "web"])[0]["claim"]["deadline_at"]);
    let of_generators = || {
        let generators = pool.lines(&["generators"]);
        let mut holds = generators.iter().filter_map(|generator| generator["holds"].get(0));
        deadline(&holds.next_back().unwrap()["deadline_at"])
    };
    // The times are compared to the minute: each is computed anew from the time that is left.
    let minute = |text: String| text[..16].to_owned();
    wait_until("all say the same", PATIENCE, || {
        minute(of_show()) == minute(of_generators()) && minute(of_list()) == minute(of_show())
    });
    wait_until("a heartbeat moves it", PATIENCE, || {
        worker.beat(held(&claimed)).unwrap();
        of_show() > first
    });
    worker.ack(held(&claimed)).unwrap();
    assert_eq!(shown(&pool, &id)["claim"], Value::Null);
}
