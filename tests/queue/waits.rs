//! Waiters are woken: no message, no end and no empty queue is missed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::support::{Client, await_state, claiming, held, pool, send, session};
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, wait_until};

#[test]
fn q07_every_claim_that_waits_gets_what_comes() {
    const KINDS: [&str; 4] = ["a", "b", "c", "d"];
    const EACH: usize = 5;
    const SENDERS: usize = 4;
    const MESSAGES: usize = 20;
    let pool = pool("");
    let worked = AtomicUsize::new(0);
    // Each waits for one kind and ends by a message of its own: one that is not woken waits for ever.
    let work = |kind: &str| {
        let mut client = Client::new(&pool);
        loop {
            let claimed = client.await_one(&[kind]);
            client.ack(held(&claimed)).unwrap();
            if claimed.body.0 == b"end" {
                return;
            }
            worked.fetch_add(1, Ordering::Relaxed);
        }
    };
    let deliver = |n: usize| {
        let mut client = Client::new(&pool);
        for m in 0..MESSAGES {
            client.send(KINDS[(n + m) % KINDS.len()], b"text");
        }
    };
    thread::scope(|scope| {
        for kind in KINDS {
            (0..EACH).for_each(|_| drop(scope.spawn(move || work(kind))));
        }
        let senders: Vec<_> = (0..SENDERS).map(|n| scope.spawn(move || deliver(n))).collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let mut client = Client::new(&pool);
        for kind in KINDS {
            for _ in 0..EACH {
                client.send(kind, b"end");
            }
        }
    });
    assert_eq!(worked.into_inner(), SENDERS * MESSAGES);
    assert_eq!(pool.status()["queue"]["queued"], 0);
}

/// Runs `poolctl wait`.
fn waits(pool: &Pool, what: &str) -> Talk {
    Talk::start(pool.poolctl().args(["wait", "web", "--for", what, "--timeout", "60s"]))
}

#[test]
fn q07_who_waits_for_an_empty_queue_or_the_end_of_a_message_hears_of_it() {
    let pool = pool("");
    session(&pool, "other");
    pool.ok(&["wait", "web", "--for", "queue-empty"]);
    let ids: Vec<String> = (0..2).map(|n| send(&pool, "a", &n.to_string())).collect();
    let (mut empty, mut first) = (waits(&pool, "queue-empty"), waits(&pool, &format!("message:{}", ids[0])));
    // A client that was not even welcomed within the timeout asks again.
    let in_vain = |what: &str| {
        let wait = || pool.ctl(&["wait", "web", "--for", what, "--timeout", "100ms"]);
        drop(eventually("it is answered", PATIENCE, || Some(wait()).filter(|told| told.code != 7)).expect(6));
    };
    in_vain("queue-empty");
    in_vain(&format!("message:{}", ids[1]));
    pool.ok(&["wait", "other", "--for", "queue-empty"]);
    let mut client = Client::new(&pool);
    let one = client.take(&[]).unwrap();
    client.ack(held(&one)).unwrap();
    assert_eq!(first.await_end(), Some(0));
    let two = client.take(&[]).unwrap();
    client.ack(held(&two)).unwrap();
    assert_eq!(empty.await_end(), Some(0));
    // A condition that holds already returns at once.
    pool.ok(&["wait", "web", "--for", &format!("message:{}", ids[1])]);
    pool.ctl(&["wait", "web", "--for", "message:999999"]).expect(3);
}

#[test]
fn q07_who_waits_goes_on_with_the_next_daemon() {
    let pool = pool("");
    let id = send(&pool, "a", "text");
    pool.kill9(Program::Poold);
    let mut poold = pool.daemon(Program::Poold);
    poold.env("POOL_LOG", "debug");
    pool.start_as(Program::Poold, poold);
    pool.await_poold();
    let mut end = waits(&pool, &format!("message:{id}"));
    let mut empty = waits(&pool, "queue-empty");
    // A client that never reached a daemon does not wait for another.
    let log = pool.path("poold.log");
    let has_met = |pid: u32| {
        let log = std::fs::read_to_string(&log).unwrap();
        log.lines().any(|line| line.contains("connected") && line.contains(&format!("pid={pid} ")))
    };
    wait_until("both are connected", PATIENCE, || has_met(end.pid()) && has_met(empty.pid()));
    pool.ok(&["ls"]);
    pool.restart_poold();
    let mut client = Client::new(&pool);
    let claimed = client.claims(None, claiming(&[], 1, Duration::ZERO)).remove(0);
    client.ack(held(&claimed)).unwrap();
    await_state(&pool, &id, "done");
    assert_eq!((end.await_end(), empty.await_end()), (Some(0), Some(0)));
}
