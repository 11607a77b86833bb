//! Promises to holders of messages and to clients that repeat requests, at awkward moments.

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::request::{Claim, Disposition, Fail};
use protocol::{ErrorCode, Request, SessionRef};

use super::support::{Client, await_state, claiming, held, op, pool, refused, send, sending, session, state};
use crate::harness::{PATIENCE, Program, send_signal, wait_until};

#[test]
fn o02_a_poold_that_is_told_to_end_has_stored_what_it_answered_and_the_rest_can_be_repeated() {
    let pool = pool("[queue]\nmax_messages = 1000000\n");
    let senders: Vec<_> = (0..4)
        .map(|n| {
            let mut client = Client::new(&pool);
            thread::spawn(move || {
                let mut sent = Vec::new();
                loop {
                    let (op, request) = (op(), Request::Send(sending("a", format!("{n}").as_bytes())));
                    match client.attempt(Some(op.clone()), request.clone()) {
                        Ok(Ok(protocol::Response::Sent(answer))) => sent.push(answer.message.id),
                        _ => return (sent, op, request),
                    }
                }
            })
        })
        .collect();
    wait_until("a good many are sent", PATIENCE, || {
        pool.show("web")["total_requests"].as_u64().unwrap() > 200
    });
    pool.end(Program::Poold, Signal::SIGTERM);
    let over: Vec<_> = senders.into_iter().map(|sender| sender.join().unwrap()).collect();
    pool.start_poold();
    let mut client = Client::new(&pool);
    let listed = pool.lines(&["queue", "ls", "web", "--state", "queued", "--limit", "1000000"]);
    let queued: BTreeSet<u64> = listed.iter().map(|message| message["id"].as_u64().unwrap()).collect();
    for (sent, op, request) in over {
        assert!(sent.iter().all(|id| queued.contains(&id.0)), "{sent:?} {queued:?}");
        let once = client.call(Some(op.clone()), request.clone()).unwrap();
        assert_eq!(client.call(Some(op), request).unwrap(), once);
    }
}

#[test]
fn o01_an_operation_for_another_session_is_another() {
    let pool = pool("");
    session(&pool, "other");
    let mut client = Client::new(&pool);
    let op = op();
    client.call(Some(op.clone()), Request::Send(sending("a", b"text"))).unwrap();
    let elsewhere =
        protocol::request::Send { session: SessionRef("other".to_owned()), ..sending("a", b"text") };
    refused(client.call(Some(op), Request::Send(elsewhere)), ErrorCode::Conflict);
}

#[test]
fn q02_a_verdict_under_a_token_that_was_taken_away_is_refused() {
    let pool = pool("[queue]\nlease = \"1s\"\n");
    let mut client = Client::new(&pool);
    let id = client.send("a", b"text");
    let claimed = client.take(&["a"]).unwrap();
    await_state(&pool, id.0, "queued");
    let dead = Fail { held: held(&claimed), reason: "poison".to_owned(), then: Disposition::Dead };
    refused(client.call(None, Request::Fail(dead)), ErrorCode::Conflict);
    assert_eq!(state(&pool, id.0), "queued");
}

#[test]
fn l04_a_worker_that_is_heard_of_over_two_connections_may_lose_one() {
    let pool = pool("");
    let mut generator = Client::generator(&pool, &["a"]);
    let id = generator.send("a", b"text");
    let claimed = generator.take(&["a"]).unwrap();
    let mut keeper = Client::new(&pool);
    keeper.call(None, Request::Heartbeat(vec![held(&claimed)])).unwrap();
    drop(keeper);
    // Longer than the grace after a lost connection that others have.
    let since = Instant::now();
    wait_until("a while has passed", PATIENCE, || since.elapsed() > Duration::from_secs(6));
    assert_eq!(state(&pool, id.0), "claimed");
    generator.ack(held(&claimed)).unwrap();
}

#[test]
fn l03_a_daemon_that_stood_still_takes_nothing_away() {
    let pool = pool("[queue]\nlease = \"6s\"\n");
    let mut client = Client::new(&pool);
    let id = client.send("a", b"text");
    let claimed = client.take(&["a"]).unwrap();
    let poold = pool.pid(Program::Poold).unwrap();
    send_signal(poold, Signal::SIGSTOP);
    let since = Instant::now();
    wait_until("the lease would be over", PATIENCE, || since.elapsed() > Duration::from_secs(8));
    send_signal(poold, Signal::SIGCONT);
    // No earlier heartbeat is pending, and the claim outlives a moment without one.
    let since = Instant::now();
    wait_until("the daemon has looked", PATIENCE, || since.elapsed() > Duration::from_millis(500));
    client.call(None, Request::Heartbeat(vec![held(&claimed)])).unwrap();
    client.ack(held(&claimed)).unwrap();
    assert_eq!(state(&pool, id.0), "done");
}

#[test]
fn l03_a_standstill_that_ends_just_after_the_lease_would_is_one() {
    let pool = pool("[queue]\nlease = \"8s\"\n");
    let mut client = Client::new(&pool);
    let id = client.send("a", b"text");
    let claimed = client.take(&["a"]).unwrap();
    let (claimed_at, poold) = (Instant::now(), pool.pid(Program::Poold).unwrap());
    wait_until("it has looked since", PATIENCE, || claimed_at.elapsed() > Duration::from_secs(2));
    send_signal(poold, Signal::SIGSTOP);
    wait_until("the lease is just over", PATIENCE, || claimed_at.elapsed() > Duration::from_millis(8300));
    send_signal(poold, Signal::SIGCONT);
    let since = Instant::now();
    wait_until("the daemon has looked", PATIENCE, || since.elapsed() > Duration::from_millis(500));
    client.ack(held(&claimed)).unwrap();
    assert_eq!(state(&pool, id.0), "done");
}

#[test]
fn q07_a_pause_that_is_over_at_once_wakes_who_waits() {
    let pool = pool("");
    let mut client = Client::new(&pool);
    client.send("a", b"text");
    for _ in 0..4 {
        let claimed = client.await_one(&["a"]);
        let later =
            Fail { held: held(&claimed), reason: "soon".to_owned(), then: Disposition::Later(Some(1)) };
        client.call(None, Request::Fail(later)).unwrap();
        // Well before the claim's wait would be over.
        let wait = Claim { wait_ms: 20_000, ..claiming(&["a"], 1, PATIENCE) };
        let again = client.claims(None, wait);
        assert_eq!(again.len(), 1);
        let back =
            Fail { held: held(&again[0]), reason: "not begun".to_owned(), then: Disposition::GiveBack };
        client.call(None, Request::Fail(back)).unwrap();
    }
}

#[test]
fn a_session_that_restarts_takes_messages() {
    // Longer than a busy machine may keep this test from looking.
    let pool = crate::harness::Pool::with("[reaper]\ngrace = '5s'\n");
    let id = pool.script("web", "trap '' TERM HUP; touch ready; exec sleep 1000");
    let ready = pool.state().join("sessions").join(&id).join("work/ready");
    wait_until("it is deaf", PATIENCE, || ready.exists());
    let restart = {
        let mut command = pool.poolctl();
        command.args(["--timeout", "60s", "restart", "web"]).spawn().unwrap()
    };
    wait_until("it is on its way", PATIENCE, || pool.lifecycle("web") != "live");
    let id = send(&pool, "a", "meanwhile");
    assert_eq!(state(&pool, &id), "queued");
    let mut restart = restart;
    assert!(restart.wait().unwrap().success());
}
