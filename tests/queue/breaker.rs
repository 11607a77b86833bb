//! The circuit breaker of a message kind: opens durably after repeated failures, and is reported.

use protocol::request::Disposition;
use serde_json::json;

use super::support::{Client, await_state, events, held, pool, send, shown, state};
use crate::harness::{PATIENCE, Pool, wait_until};

/// Opens the breaker: three messages of a kind fail in a row.
#[track_caller]
fn open(pool: &Pool) -> (Client, String) {
    let id = send(pool, "summarize", "text");
    let mut client = Client::new(pool);
    for _ in 0..3 {
        let claimed = client.await_one(&["summarize"]);
        client.fail(held(&claimed), Disposition::Retry).unwrap();
    }
    (client, id)
}

const CONFIG: &str = "[queue]\nmax_attempts = 100\nretry_backoff = '0ms'\nbreaker_failures = 3\n";

#[test]
fn a_kind_that_fails_is_held_back_and_the_sender_is_told() {
    let pool = pool(&format!("{CONFIG}breaker_pause = '10m'\n"));
    let (mut client, id) = open(&pool);
    for _ in 0..2 {
        assert!(client.take(&["summarize"]).is_none());
        let sent = pool.ctl(&["send", "web", "--kind", "summarize", "more"]).expect(0);
        assert!(sent.stderr.contains("held back") && sent.stderr.contains("3 times"), "{}", sent.stderr);
        let sent = pool.json(&["send", "web", "--kind", "summarize", "more"]);
        assert_eq!((&sent["state"], &sent["held_back"]["failures"]), (&json!("queued"), &json!(3)), "{sent}");
        let status = pool.status();
        let held_back = &status["breakers"][0];
        assert_eq!(
            (&held_back["kind"], &held_back["name"]),
            (&json!("summarize"), &json!("web")),
            "{status}"
        );
        assert_eq!(held_back["reason"], "no");
        let text = pool.ctl(&["status"]);
        assert!(text.stdout.contains("held back") && text.stdout.contains("summarize"), "{}", text.stdout);
        // Other kinds go on.
        let other = pool.json(&["send", "web", "--kind", "other", "text"]);
        assert_eq!(other["held_back"], json!(null));
        let claimed = client.take(&["summarize", "other"]).unwrap();
        assert_eq!(claimed.message.kind, "other");
        client.ack(held(&claimed)).unwrap();
        // The state survives a kill.
        pool.restart_poold();
        client = Client::new(&pool);
    }
    assert_eq!(events(&pool, &["breaker_opened"]).len(), 1);
    // `queue retry` closes the breaker: the failed messages are worked, and those sent since.
    pool.ok(&["queue", "retry", "web", &id]);
    assert_eq!(events(&pool, &["breaker_closed"]).len(), 1);
    assert_eq!(pool.status()["breakers"], json!([]));
    for _ in 0..5 {
        let claimed = client.take(&["summarize"]).unwrap();
        client.ack(held(&claimed)).unwrap();
    }
    assert_eq!(pool.json(&["send", "web", "--kind", "summarize", "last"])["held_back"], json!(null));
}

#[test]
fn a_probe_is_given_out_now_and_then_until_one_is_worked() {
    let pool = pool(&format!("{CONFIG}breaker_pause = '100ms'\n"));
    let (mut client, id) = open(&pool);
    let pause = |pool: &Pool| {
        let breaker = pool.status()["breakers"][0].clone();
        (breaker["failures"].as_u64().unwrap(), breaker["probe_at"].as_str().unwrap().to_owned())
    };
    let first = pause(&pool);
    // The probe comes by itself. It fails, so the next one comes later.
    let probe = client.await_one(&["summarize"]);
    assert_eq!(probe.message.id.to_string(), id);
    assert!(Client::new(&pool).take(&["summarize"]).is_none(), "one at a time");
    client.fail(held(&probe), Disposition::Retry).unwrap();
    let second = pause(&pool);
    assert_eq!((first.0, second.0), (3, 4));
    assert!(second.1 > first.1);
    let probe = client.await_one(&["summarize"]);
    client.ack(held(&probe)).unwrap();
    assert_eq!(state(&pool, &id), "done");
    assert_eq!((events(&pool, &["breaker_opened"]).len(), events(&pool, &["breaker_closed"]).len()), (1, 1));
    assert_eq!(pool.status()["breakers"], json!([]));
    // After a success, one more failure counts as the first.
    send(&pool, "summarize", "text");
    let claimed = client.await_one(&["summarize"]);
    client.fail(held(&claimed), Disposition::Retry).unwrap();
    assert_eq!(pool.status()["breakers"], json!([]));
}

#[test]
fn a_worker_of_a_kind_that_fails_waits_for_the_probe_and_goes_on() {
    let pool = pool(&format!("{CONFIG}breaker_pause = '100ms'\n"));
    let good = pool.path("good");
    let ids: Vec<String> = (0..2).map(|n| send(&pool, "summarize", &n.to_string())).collect();
    let worker = super::support::worker(&pool, &[], &format!("test -e {}", good.display()));
    wait_until("it is held back", PATIENCE, || !events(&pool, &["breaker_opened"]).is_empty());
    std::fs::write(&good, "").unwrap();
    for id in &ids {
        await_state(&pool, id, "done");
    }
    assert!(shown(&pool, &ids[0])["attempts"].as_u64().unwrap() >= 4);
    assert_eq!(shown(&pool, &ids[1])["attempts"], 1);
    drop(worker);
}
