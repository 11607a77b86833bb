//! A message sent twice exists once: by key, by operation id, also over a killed daemon.

use protocol::{ErrorCode, OpId, Request, Response};
use serde_json::json;

use super::support::{Client, pool, refused, send, sending, shown};
use crate::harness::{PATIENCE, Program, wait_until};

#[test]
fn d02_a_key_stands_for_one_message_over_a_kill() {
    let pool = pool("");
    let send = |key: &str, text: &str| pool.ctl(&["send", "web", "--kind", "a", "--key", key, text]);
    let first = send("k1", "text").expect(0).text().to_owned();
    assert_eq!(send("k1", "text").expect(0).text(), first);
    pool.restart_poold();
    assert_eq!(send("k1", "text").expect(0).text(), first);
    let refusal = send("k1", "other").expect(4);
    assert!(refusal.stderr.contains("k1") && refusal.stderr.contains(&first), "{}", refusal.stderr);
    pool.ctl(&["send", "web", "--kind", "b", "--key", "k1", "text"]).expect(4);
    // Also once it is worked, and after that over a kill.
    let mut client = Client::new(&pool);
    let claimed = client.take(&["a"]).unwrap();
    client.ack(super::support::held(&claimed)).unwrap();
    assert_eq!(send("k1", "text").expect(0).text(), first);
    pool.restart_poold();
    assert_eq!(send("k1", "text").expect(0).text(), first);
    assert_ne!(send("k2", "text").expect(0).text(), first);
    assert_eq!(super::support::events(&pool, &["message_queued"]).len(), 2);
}

#[test]
fn o01_an_operation_is_done_once_and_has_one_content() {
    let pool = pool("");
    let id = |op: &str, args: &[&str]| pool.ctl(&[args, &["--op-id", op]].concat());
    let text = ["send", "web", "--kind", "a", "text"];
    let first = id("o1", &text).expect(0).text().to_owned();
    for round in 0..2 {
        assert_eq!(id("o1", &text).expect(0).text(), first, "round {round}");
        for other in [
            ["send", "web", "--kind", "a", "other"],
            ["send", "web", "--kind", "b", "text"],
            ["queue", "cancel", "web", &first, "-q"],
        ] {
            id("o1", &other).expect(4);
        }
        pool.ctl(&["send", "web", "--kind", "a", "--priority", "1", "--op-id", "o1", "text"]).expect(4);
        pool.ctl(&["send", "web", "--kind", "a", "--ttl", "1h", "--op-id", "o1", "text"]).expect(4);
        if round == 0 {
            pool.restart_poold();
        }
    }
    assert_eq!(super::support::events(&pool, &["message_queued"]).len(), 1);
    // A repeated operation gets its first answer, whatever happened since.
    let cancelled = id("o2", &["--json", "queue", "cancel", "web", &first]).expect(0);
    pool.ok(&["queue", "retry", "web", &first]);
    pool.restart_poold();
    assert_eq!(id("o2", &["--json", "queue", "cancel", "web", &first]).expect(0).stdout, cancelled.stdout);
    assert_eq!(shown(&pool, &first)["state"], "queued", "it was not cancelled again");
    id("o2", &text).expect(4);
    id("o2", &["queue", "retry", "web", &first]).expect(4);
    let purge = ["--json", "queue", "purge", "web", "--state", "cancelled"];
    assert_eq!(id("o3", &purge).expect(0).json(), json!({"purged": 0}));
    send(&pool, "b", "text");
    pool.ok(&["queue", "cancel", "web", "--all"]);
    assert_eq!(id("o3", &purge).expect(0).json(), json!({"purged": 0}));
}

#[test]
fn o01_what_was_queued_is_not_queued_again_where_its_message_was_removed() {
    let pool = pool("[queue]\nkeep_count = 1\n");
    let send = |op: &str| pool.ctl(&["send", "web", "--kind", "a", "--op-id", op, "text"]);
    let (purged, removed) = (send("o1").expect(0), send("o2").expect(0));
    pool.ok(&["queue", "cancel", "web", purged.text()]);
    pool.ok(&["queue", "purge", "web", "--state", "cancelled"]);
    let refusal = send("o1").expect(3);
    assert!(refusal.stderr.contains(purged.text()), "{}", refusal.stderr);
    pool.ctl(&["send", "web", "--kind", "a", "--op-id", "o1", "other"]).expect(4);
    pool.start(Program::Reaper);
    pool.ok(&["rm", "web", "--force"]);
    pool.script("web", "sleep 600");
    for _ in 0..2 {
        let refusal = send("o2").expect(3);
        assert!(refusal.stderr.contains(removed.text()), "{}", refusal.stderr);
        pool.restart_poold();
    }
    // The oldest of too many finished messages is forgotten at the start.
    let oldest = send("o3").expect(0);
    send("o4").expect(0);
    pool.ok(&["queue", "cancel", "web", "--all"]);
    pool.restart_poold();
    let is_forgotten = || pool.ctl(&["queue", "show", "web", oldest.text()]).code == 3;
    wait_until("the oldest message is forgotten", PATIENCE, is_forgotten);
    let refusal = send("o3").expect(3);
    assert!(refusal.stderr.contains(oldest.text()), "{}", refusal.stderr);
    assert_eq!(super::support::events(&pool, &["message_queued"]).len(), 4);
}

#[test]
fn o01_a_request_with_a_random_id_is_known_after_a_restart_where_its_message_was_one_too_many() {
    let pool = pool("[queue]\nkeep_count = 0\n");
    let random = Some(OpId::Random([7; 16]));
    let queue = || Client::new(&pool).call(random.clone(), Request::Send(sending("a", b"x")));
    let Ok(Response::Sent(sent)) = queue() else { panic!("not sent") };
    pool.ok(&["queue", "cancel", "web", "--all"]);
    pool.restart_poold();
    let id = sent.message.id.to_string();
    let is_forgotten = || pool.ctl(&["queue", "show", "web", &id]).code == 3;
    wait_until("the message is forgotten", PATIENCE, is_forgotten);
    for _ in 0..2 {
        refused(queue(), ErrorCode::NotFound);
        pool.restart_poold();
    }
}

#[test]
fn o01_a_change_without_an_operation_id_is_refused() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    refused(client.call(None, Request::Send(sending("a", b"x"))), ErrorCode::Usage);
    let blank = Some(OpId::Named("a b".to_owned()));
    refused(client.call(blank, Request::Send(sending("a", b"x"))), ErrorCode::Usage);
    let random = Some(OpId::Random([7; 16]));
    let first = client.call(random.clone(), Request::Send(sending("a", b"x"))).unwrap();
    assert_eq!(client.call(random.clone(), Request::Send(sending("a", b"x"))).unwrap(), first);
    pool.restart_poold();
    let mut client = Client::new(&pool);
    let again = client.call(random.clone(), Request::Send(sending("a", b"x"))).unwrap();
    let (Response::Sent(first), Response::Sent(again)) = (first, again) else { panic!("not sent") };
    assert_eq!(first.message.id, again.message.id);
    refused(client.call(random, Request::Send(sending("a", b"y"))), ErrorCode::Conflict);
}

#[test]
fn a_listing_has_as_many_messages_as_were_asked_for_and_says_that_there_may_be_more() {
    let pool = pool("");
    for text in ["one", "two", "three"] {
        send(&pool, "a", text);
    }
    pool.ok(&["queue", "cancel", "web", "--all"]);
    let open: Vec<String> = ["four", "five"].iter().map(|text| send(&pool, "a", text)).collect();
    let ids = |limit: &str| {
        let listed = pool.ctl(&["queue", "ls", "web", "-q", "--limit", limit]).expect(0);
        listed.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids("1"), open[..1]);
    assert_eq!((ids("3").len(), &ids("3")[1..]), (3, &open[..]));
    let told = |limit: &str| {
        pool.ctl(&["queue", "ls", "web", "--limit", limit]).expect(0).stderr.contains("--limit")
    };
    assert_eq!((told("3"), told("6")), (true, false));
}
