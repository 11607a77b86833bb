//! The life of a message: sent, worked, retried, dead, retried by a user.

use std::fs;
use std::time::Duration;

use protocol::ErrorCode;
use protocol::request::Disposition;
use serde_json::{Value, json};

use super::support::{
    Client, await_state, claiming, events, held, pool, refused, send, sending, session, shown, state, worker,
};
use crate::harness::{PATIENCE, clock_ms, eventually, wait_until};

/// States the message went through, each with its reason.
fn history(message: &Value) -> Vec<(String, String)> {
    let steps = message["history"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    steps.map(|step| (text(&step["state"]), text(&step["reason"]))).collect()
}

#[test]
fn q03_a_message_is_worked_once_and_its_result_is_kept() {
    let pool = pool("");
    let id = pool.ok(&["send", "web", "--kind", "shout", "--key", "k1", "hello"]);
    assert_eq!(state(&pool, &id), "queued");
    let env = pool.path("env");
    let script = format!("env >{}; tr a-z A-Z", env.display());
    let work = ["--json", "work", "web", "--kind", "shout", "--until-empty", "--result", "--", "sh", "-c"];
    let said = pool.ctl(&[&work[..], &[script.as_str()]].concat()).expect(0).json_lines();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((&said[0]["id"], &said[0]["outcome"]), (&json!(id.parse::<u64>().unwrap()), &json!("done")));
    let done = shown(&pool, &id);
    assert_eq!(
        (&done["state"], &done["attempts"], &done["claim"]),
        (&json!("done"), &json!(1), &json!(null))
    );
    assert_eq!(done["result"], "HELLO", "{done}");
    assert_eq!(history(&done).last().unwrap().0, "done");
    let env = fs::read_to_string(env).unwrap();
    let session = pool.show("web")["id"].as_str().unwrap().to_owned();
    for variable in [
        format!("POOL_MESSAGE_ID={id}"),
        "POOL_MESSAGE_KIND=shout".to_owned(),
        "POOL_MESSAGE_KEY=k1".to_owned(),
        "POOL_MESSAGE_ORIGIN=cli".to_owned(),
        "POOL_MESSAGE_ATTEMPT=1".to_owned(),
        format!("POOL_SESSION={session}"),
        format!("POOL_SOCKET={}", pool.socket().display()),
    ] {
        assert!(env.lines().any(|line| line == variable), "{variable} is not in {env}");
    }
    let kinds = |id: &str| {
        let all = pool.events();
        let of = all.iter().filter(|event| event["id"] == id.parse::<u64>().unwrap());
        of.map(|event| event["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&id), ["message_queued", "message_claimed", "message_done"]);
}

#[test]
fn q03_who_waits_for_a_message_hears_how_it_ended() {
    let pool = pool("[queue]\nmax_attempts = 1\n");
    let mut worker = worker(&pool, &["--kind", "a"], "read text; test \"$text\" = good");
    let good = pool.json(&["send", "web", "--kind", "a", "--wait", "done", "--timeout", "30s", "good"]);
    assert_eq!(good["state"], "done");
    let bad =
        pool.ctl(&["send", "web", "--kind", "a", "--wait", "done", "--timeout", "30s", "bad"]).expect(1);
    assert!(bad.stderr.contains("dead") && bad.stderr.contains("exit 1"), "{}", bad.stderr);
    crate::harness::send_signal(worker.pid(), nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.await_end(), Some(0), "told to end, and nothing runs");
}

#[test]
fn q04_kinds_are_merged_as_they_were_sent_and_each_is_worked_in_order() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    let a1 = client.send("a", b"a1");
    let b1 = client.send("b", b"b1");
    let a2 = client.sent(protocol::request::Send { priority: 5, ..sending("a", b"a2") }).unwrap();
    let b2 = client.send("b", b"b2");
    let c1 = client.send("c", b"c1");
    // The first of each kind, higher priority first, then in order of sending; only one of each kind.
    let first = client.claims(None, claiming(&["a", "b"], 8, Duration::ZERO));
    assert_eq!(first.iter().map(|one| one.message.id).collect::<Vec<_>>(), [a2, b1]);
    assert_eq!(first.iter().map(|one| one.body.0.clone()).collect::<Vec<_>>(), [b"a2", b"b1"]);
    assert!(client.take(&["a", "b"]).is_none(), "one in flight of each");
    client.ack(held(&first[0])).unwrap();
    assert_eq!(client.take(&["a", "b"]).unwrap().message.id, a1);
    // A retried message keeps its place.
    client.fail(held(&first[1]), Disposition::Later(Some(0))).unwrap();
    let again = client.await_one(&["a", "b"]);
    assert_eq!((again.message.id, again.message.status.attempts), (b1, 2));
    client.ack(held(&again)).unwrap();
    assert_eq!(client.take(&["b"]).unwrap().message.id, b2);
    // Without kinds, everything but prompts is claimed.
    let prompt = pool.ok(&["send", "web", "--ttl", "1h", "prompt"]);
    assert_ne!(prompt, c1.to_string());
    assert_eq!(client.take(&[]).unwrap().message.id, c1);
    assert!(client.take(&[]).is_none());
}

#[test]
fn handlers_of_different_kinds_run_at_once_and_of_one_kind_one_after_the_other() {
    let pool = pool("");
    let dir = pool.path("at");
    fs::create_dir(&dir).unwrap();
    for kind in ["a", "b", "c"] {
        (0..3).for_each(|n| drop(send(&pool, kind, &n.to_string())));
    }
    // In the first round each handler waits until all three are there; a second one of the same kind would
    // find a mark.
    let script = format!(
        "cd {}; mkdir busy-$POOL_MESSAGE_KIND || exit 1; read n; : >$POOL_MESSAGE_KIND-$n; \
         until [ -e a-$n ] && [ -e b-$n ] && [ -e c-$n ]; do sleep 0.01; done; \
         echo $n >>order-$POOL_MESSAGE_KIND; rmdir busy-$POOL_MESSAGE_KIND",
        dir.display()
    );
    let work = ["work", "web", "--concurrency", "3", "--until-empty", "--", "sh", "-c"];
    pool.ctl(&[&work[..], &[script.as_str()]].concat()).expect(0);
    for kind in ["a", "b", "c"] {
        assert_eq!(fs::read_to_string(dir.join(format!("order-{kind}"))).unwrap(), "0\n1\n2\n", "{kind}");
    }
    assert_eq!(events(&pool, &["message_failed"]).len(), 0);
}

#[test]
fn q03_what_fails_is_tried_again_later_each_time_and_is_dead_in_the_end() {
    let pool = pool("[queue]\nmax_attempts = 3\nretry_backoff = '40ms'\nbreaker_failures = 0\n");
    let id = send(&pool, "a", "text");
    let after = send(&pool, "a", "after");
    pool.ctl(&[
        "work",
        "web",
        "--until-empty",
        "--",
        "sh",
        "-c",
        "read text; test \"$text\" = after || exit 3",
    ])
    .expect(0);
    let dead = shown(&pool, &id);
    assert_eq!((&dead["state"], &dead["attempts"]), (&json!("dead"), &json!(3)));
    assert_eq!(dead["reason"], "3 of 3 attempts: exit 3");
    let steps: Vec<(String, String)> = history(&dead);
    let states: Vec<&str> =
        steps.iter().map(|step| step.0.as_str()).filter(|state| *state != "claimed").collect();
    assert!(states.ends_with(&["queued", "queued", "dead"]), "{steps:?}");
    assert!(steps.iter().any(|step| *step == ("queued".to_owned(), "exit 3".to_owned())), "{steps:?}");
    assert_eq!(state(&pool, &after), "done", "what comes behind it is worked all the same");
    // Each pause is twice the one before.
    let failed = events(&pool, &["message_failed"]);
    let pauses: Vec<i64> =
        failed.iter().map(|event| clock_ms(&event["not_before"]) - clock_ms(&event["changed_at"])).collect();
    assert_eq!(pauses, [40, 80]);
    let listed = pool.lines(&["queue", "dead", "web"]);
    assert_eq!(listed.iter().map(|message| message["id"].to_string()).collect::<Vec<_>>(), [id.as_str()]);
    // Retried by a user, a message has its full number of attempts again.
    pool.ok(&["queue", "retry", "web", &id]);
    let anew = shown(&pool, &id);
    assert_eq!((&anew["state"], &anew["attempts"]), (&json!("queued"), &json!(0)));
    pool.ctl(&["work", "web", "--until-empty", "--", "true"]).expect(0);
    assert_eq!(state(&pool, &id), "done");
}

#[test]
fn exit_75_is_tried_later_and_is_no_failure_of_its_kind() {
    let pool = pool("[queue]\nretry_backoff = '10ms'\nbreaker_failures = 1\n");
    let id = send(&pool, "a", "text");
    let mark = pool.path("mark");
    let script = format!("[ -e {0} ] || {{ : >{0}; exit 75; }}", mark.display());
    pool.ctl(&["work", "web", "--until-empty", "--", "sh", "-c", &script]).expect(0);
    let done = shown(&pool, &id);
    assert_eq!((&done["state"], &done["attempts"]), (&json!("done"), &json!(2)));
    assert!(history(&done).contains(&("queued".to_owned(), "exit 75".to_owned())), "{done}");
    assert_eq!(events(&pool, &["breaker_opened"]).len(), 0);
}

#[test]
fn exit_65_is_dead_at_once_and_is_no_failure_of_its_kind() {
    let pool = pool("[queue]\nbreaker_failures = 1\n");
    let ids = ["hopeless", "good"].map(|text| send(&pool, "a", text));
    pool.ctl(&["work", "web", "--until-empty", "--", "sh", "-c", "grep good || exit 65"]).expect(0);
    let dead = shown(&pool, &ids[0]);
    assert_eq!((&dead["state"], &dead["attempts"]), (&json!("dead"), &json!(1)), "{dead}");
    assert_eq!(dead["reason"], "exit 65");
    assert_eq!(state(&pool, &ids[1]), "done");
    assert_eq!(events(&pool, &["breaker_opened"]).len(), 0);
}

#[test]
fn a_queue_is_mended_by_its_user() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    let ids: Vec<String> =
        (0..5).map(|n| client.send(if n < 3 { "a" } else { "b" }, b"x").to_string()).collect();
    // One message waits, another is being worked.
    let claimed = client.take(&["a"]).unwrap();
    pool.ok(&["queue", "cancel", "web", &ids[0], &ids[1]]);
    refused(client.ack(held(&claimed)), ErrorCode::Conflict);
    refused(client.beat(held(&claimed)), ErrorCode::Conflict);
    assert_eq!((state(&pool, &ids[0]), state(&pool, &ids[1])), ("cancelled".into(), "cancelled".into()));
    pool.ok(&["queue", "cancel", "web", "--all", "--kind", "b"]);
    assert_eq!((state(&pool, &ids[3]), state(&pool, &ids[4])), ("cancelled".into(), "cancelled".into()));
    assert_eq!(state(&pool, &ids[2]), "queued", "of another kind");
    pool.ctl(&["queue", "cancel", "web", "--all", &ids[2]]).expect(2);
    pool.ctl(&["queue", "cancel", "web", "999999"]).expect(3);
    // A worked message stays worked.
    let last = client.take(&["a"]).unwrap();
    client.ack(held(&last)).unwrap();
    pool.ctl(&["queue", "cancel", "web", &ids[2]]).expect(4);
    pool.ctl(&["queue", "retry", "web", &ids[2]]).expect(4);
    pool.ok(&["queue", "retry", "web", &ids[0]]);
    let anew = client.take(&["a"]).unwrap();
    assert_eq!((anew.message.id.to_string(), anew.message.status.attempts), (ids[0].clone(), 1));
    assert!(anew.message.status.token > claimed.message.status.token, "no token is given twice");
    client.fail(held(&anew), Disposition::Dead).unwrap();
    assert_eq!(pool.lines(&["queue", "dead", "web"]).len(), 1);
    pool.ok(&["queue", "retry", "web", "--dead"]);
    assert_eq!(pool.lines(&["queue", "dead", "web"]).len(), 0);
    // A purged message is forgotten; the journal keeps its events.
    pool.ctl(&["queue", "purge", "web", &ids[0]]).expect(4);
    let purged = pool.json(&["queue", "purge", "web", "--state", "cancelled"]);
    assert_eq!(purged["purged"], 3);
    pool.ctl(&["queue", "show", "web", &ids[1]]).expect(3);
    assert_eq!(events(&pool, &["message_cancelled"]).len(), 4);
}

#[test]
fn a_message_that_waits_for_too_long_expires_and_one_that_is_worked_does_not() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    // Long enough to be taken, short enough to pass while it is worked.
    let claimed = eventually("one is taken in time", PATIENCE, || {
        client.sent(protocol::request::Send { ttl_ms: Some(2000), ..sending("b", b"x") }).unwrap();
        client.take(&["b"])
    });
    let worked = claimed.message.id;
    let id = pool.ok(&["send", "web", "--kind", "a", "--ttl", "50ms", "text"]);
    let gone = pool.ctl(&["wait", "web", "--for", &format!("message:{id}"), "--timeout", "30s"]).expect(1);
    assert!(gone.stderr.contains("expired"), "{}", gone.stderr);
    assert_eq!(state(&pool, &id), "expired");
    assert!(client.take(&["a"]).is_none());
    // A third message waits as long as the first has: when it expires, the first would have too.
    let last = client.sent(protocol::request::Send { ttl_ms: Some(2000), ..sending("c", b"x") }).unwrap();
    await_state(&pool, last, "expired");
    client.ack(held(&claimed)).unwrap();
    assert_eq!(state(&pool, worked), "done");
    let expired: Vec<Value> = events(&pool, &["message_expired"]).iter().map(|e| e["id"].clone()).collect();
    assert!(expired.ends_with(&[id.parse::<u64>().unwrap().into(), last.0.into()]), "{expired:?}");
}

#[test]
fn a_session_that_is_over_refuses_and_what_it_has_is_worked_or_cancelled_by_name() {
    let pool = crate::harness::Pool::new();
    session(&pool, "web");
    let ids: Vec<String> = (0..4).map(|n| send(&pool, "a", &n.to_string())).collect();
    pool.ok(&["kill", "web"]);
    let refusal = pool.ctl(&["send", "web", "--kind", "a", "late"]).expect(5);
    assert!(refusal.stderr.contains("restart"), "{}", refusal.stderr);
    // A message that was taken is worked all the same.
    pool.ctl(&["work", "web", "--once", "--", "true"]).expect(0);
    assert_eq!(state(&pool, &ids[0]), "done");
    let mut client = Client::new(&pool);
    let claimed = client.take(&["a"]).unwrap();
    pool.ctl(&["rm", "web"]).expect(4);
    assert_eq!(state(&pool, &ids[1]), "claimed", "what is refused changes nothing");
    let waits = crate::harness::Talk::start(pool.poolctl().args([
        "wait",
        "web",
        "--for",
        &format!("message:{}", ids[3]),
    ]));
    pool.ok(&["rm", "--force", "web"]);
    refused(client.ack(held(&claimed)), ErrorCode::Conflict);
    let cancelled: Vec<String> =
        events(&pool, &["message_cancelled"]).iter().map(|e| e["id"].to_string()).collect();
    assert_eq!(cancelled, ids[1..], "each is said to be over");
    let reasons = events(&pool, &["message_cancelled"]);
    assert!(reasons.iter().all(|event| event["reason"].as_str().unwrap().contains("removed")), "{reasons:?}");
    let mut waits = waits;
    wait_until("the waiting client is told", PATIENCE, || !waits.errors().is_empty());
    assert_ne!(waits.await_end(), Some(0));
}

#[test]
fn a_worker_that_is_told_twice_gives_back_what_it_holds() {
    let pool = pool("");
    let id = send(&pool, "a", "text");
    let started = pool.path("started");
    let mut worker = worker(&pool, &[], &format!(": >{}; exec sleep 1000", started.display()));
    wait_until("it runs", PATIENCE, || started.exists());
    crate::harness::send_signal(worker.pid(), nix::sys::signal::Signal::SIGTERM);
    wait_until("it says what it waits for", PATIENCE, || {
        worker.errors().contains("waiting for the running handlers")
    });
    // A second signal right after the first counts as the same: `timeout` sends one to a process and to its group.
    crate::harness::send_signal(worker.pid(), nix::sys::signal::Signal::SIGTERM);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(state(&pool, &id), "claimed");
    crate::harness::send_signal(worker.pid(), nix::sys::signal::Signal::SIGTERM);
    assert_eq!(worker.await_end(), Some(143));
    await_state(&pool, &id, "queued");
    assert_eq!(shown(&pool, &id)["attempts"], 0, "it was not begun, for all that counts");
    let mut client = Client::new(&pool);
    assert_eq!(client.take(&[]).unwrap().message.id.to_string(), id);
}

#[test]
fn a_worker_whose_terminal_is_closed_ends_its_handlers_and_gives_back_what_it_holds() {
    // It leaves HUP alone where it is ignored, as below `nohup`.
    if process::identity::caller_ignores(nix::sys::signal::Signal::SIGHUP) {
        return;
    }
    let pool = pool("");
    let id = send(&pool, "a", "text");
    let child = pool.path("child");
    let mut worker = worker(&pool, &[], &format!("sleep 1000 & echo $! >{}; wait", child.display()));
    let pid = pool.await_file(&child, |bytes| bytes.ends_with(b"\n"));
    let pid = String::from_utf8(pid).unwrap().trim().parse().unwrap();
    crate::harness::send_signal(worker.pid(), nix::sys::signal::Signal::SIGHUP);
    assert_eq!(worker.await_end(), Some(129));
    assert!(crate::harness::gone(pid), "what the handler started is ended, too");
    await_state(&pool, &id, "queued");
    assert_eq!(shown(&pool, &id)["attempts"], 0, "it was not begun, for all that counts");
}
