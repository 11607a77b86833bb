//! Limits refuse the surplus with a clear message; nothing in the queue is evicted.

use protocol::request::Send;
use protocol::{ErrorCode, OsBytes, Request};
use serde_json::json;

use super::support::{Client, events, held, op, pool, refused, sending, session, shown};

#[test]
fn q08_a_full_queue_refuses_and_nothing_is_evicted() {
    let pool = pool("[queue]\nmax_messages = 3\nmax_bytes = '10KiB'\n");
    session(&pool, "other");
    let send = |key: &str, text: &str| {
        pool.ctl_in(&["send", "web", "--kind", "a", "--key", key, "-"], text.as_bytes())
    };
    let ids: Vec<String> =
        ["1", "2", "3"].iter().map(|key| send(key, "x").expect(0).text().to_owned()).collect();
    let refusal = send("4", "x").expect(5);
    assert!(refusal.stderr.contains("full") && refusal.stderr.contains("max_messages"), "{}", refusal.stderr);
    assert_eq!(send("2", "x").expect(0).text(), ids[1], "a repeat needs no room");
    pool.ok(&["send", "other", "--kind", "a", "x"]);
    // A claimed message counts until it is finished.
    let mut client = Client::new(&pool);
    let claimed = client.take(&["a"]).unwrap();
    send("4", "x").expect(5);
    client.ack(held(&claimed)).unwrap();
    // Now the limit on bytes.
    let refusal = send("4", &"x".repeat(10 * 1024)).expect(5);
    assert!(refusal.stderr.contains("max_bytes"), "{}", refusal.stderr);
    send("4", &"x".repeat(10 * 1024 - 2)).expect(0);
    send("5", "x").expect(5);
    for id in &ids[1..] {
        assert_eq!(shown(&pool, id)["state"], "queued");
    }
    assert_eq!(events(&pool, &["message_queued"]).len(), 5);
    assert_eq!(events(&pool, &["message_cancelled", "message_expired", "message_dead"]).len(), 0);
    // The limits survive a restart, and change when the configuration is reloaded.
    pool.restart_poold();
    send("5", "x").expect(5);
    pool.reload("[queue]\nmax_messages = 4\n");
    send("5", "x").expect(0);
    send("6", "x").expect(5);
}

#[test]
fn q08_the_pool_has_limits_of_its_own() {
    let pool = pool("[queue]\npool_max_messages = 3\npool_max_bytes = '8KiB'\n");
    session(&pool, "other");
    let send = |to: &str, text: &str| pool.ctl_in(&["send", to, "--kind", "a", "-"], text.as_bytes());
    send("web", "x").expect(0);
    send("other", &"x".repeat(8 * 1024 - 2)).expect(0);
    let refusal = send("web", "xx").expect(5);
    assert!(refusal.stderr.contains("pool_max_bytes"), "{}", refusal.stderr);
    send("web", "x").expect(0);
    let refusal = send("other", "x").expect(5);
    assert!(refusal.stderr.contains("pool_max_messages"), "{}", refusal.stderr);
    assert_eq!(pool.status()["queue"]["queued"], 3);
    pool.ok(&["queue", "cancel", "web", "--all"]);
    send("other", "xxx").expect(5);
    send("web", "xxx").expect(5);
    pool.ok(&["queue", "cancel", "other", "--all"]);
    send("web", "x").expect(0);
}

#[test]
fn q08_what_is_too_long_is_refused_whoever_sends_it() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    let longest = vec![b'x'; protocol::message::BODY_MAX];
    client.send("a", &longest);
    let mut refuse = |send: Send| refused(client.call(Some(op()), Request::Send(send)), ErrorCode::Usage);
    refuse(sending("a", &[longest.as_slice(), b"x"].concat()));
    refuse(sending("a", b""));
    refuse(sending("A", b"x"));
    refuse(Send { key: Some("k".repeat(257)), ..sending("a", b"x") });
    refuse(Send { origin: "o".repeat(257), ..sending("a", b"x") });
    refuse(Send { key: Some("k\u{1b}".to_owned()), ..sending("a", b"x") });
    refuse(Send { origin: "o\n".to_owned(), ..sending("a", b"x") });
    refuse(Send { body: OsBytes(vec![0xff]), ..sending("prompt", b"") });
    let claimed = client.take(&["a"]).unwrap();
    assert_eq!(claimed.body.0, longest);
    let too_long = Some(OsBytes(vec![b'x'; protocol::message::RESULT_MAX + 1]));
    let ack = protocol::request::Ack { held: held(&claimed), result: too_long };
    refused(client.call(None, Request::Ack(ack)), ErrorCode::Usage);
    client.ack(held(&claimed)).unwrap();
}

#[test]
fn d10_before_the_disk_is_full_messages_are_refused_and_what_is_there_is_worked() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    client.send("a", b"x");
    let left = pool.status()["free_bytes"].as_u64().unwrap();
    pool.reload(&format!("[queue]\nmin_free_disk = '{}GiB'\n", (left >> 30) + 1000));
    let refusal = pool.ctl(&["send", "web", "--kind", "a", "x"]).expect(5);
    assert!(refusal.stderr.contains("min_free_disk"), "{}", refusal.stderr);
    let problems = pool.ctl(&["--json", "status"]).expect(1).json()["problems"].to_string();
    assert!(problems.contains("[queue] min_free_disk keeps"), "{problems}");
    let claimed = client.take(&["a"]).unwrap();
    client.ack(held(&claimed)).unwrap();
    assert_eq!(shown(&pool, claimed.message.id)["state"], json!("done"));
    pool.reload("");
    client.send("a", b"x");
}
