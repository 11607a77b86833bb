//! Claims and leases: one live holder at a time, fenced by its token, ended before the next one starts where
//! that is promised.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use protocol::request::{Claim, ClaimRef, Disposition, Send};
use protocol::{ErrorCode, MessageId, Reply, Token};
use serde_json::{Value, json};

use super::support::{
    Client, await_state, claiming, events, held, lasting, op, pool, refused, rpc, send, sending, session,
    shown, state, worker,
};
use crate::harness::{PATIENCE, Pool, Program, Talk, alive, gone, is_stopped, send_signal, wait_until};

/// Retries without a pause.
const AT_ONCE: &str = "[queue]\nretry_backoff = '0ms'\nbreaker_failures = 0\nmax_attempts = 1000\n";
/// Lease in milliseconds, longer than a busy machine may delay a holder's heartbeat.
const SHORT: u64 = 5000;
/// A lease that never ends while a test runs.
const LONG: &str = "lease = '1h'\n";

fn short(claim: Claim) -> Claim {
    Claim { lease_ms: Some(SHORT), ..claim }
}

#[test]
fn l06_who_is_silent_loses_what_it_holds_and_who_is_not_keeps_it() {
    let pool = pool(AT_ONCE);
    let (mut client, mut other) = (Client::new(&pool), Client::new(&pool));
    let (kept, lost) = (client.send("kept", b"x"), client.send("lost", b"x"));
    let claimed = client.claims(None, short(claiming(&[], 2, PATIENCE)));
    assert_eq!(claimed.iter().map(|one| one.message.id).collect::<Vec<_>>(), [kept, lost]);
    let mut tokens = vec![held(&claimed[1]).token];
    // Waits until two leases of the other worker have ended, and one more was granted.
    while tokens.len() < 3 {
        client.beat(held(&claimed[0])).unwrap();
        // The last claim keeps the usual lease and is not lost again.
        let asked = claiming(&["lost"], 1, Duration::from_millis(100));
        let again = other.claims(None, if tokens.len() == 2 { asked } else { short(asked) });
        tokens.extend(again.iter().map(|one| held(one).token));
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "Q1: {tokens:?}");
    // Under its first token.
    client.ack(held(&claimed[0])).unwrap();
    assert_eq!(shown(&pool, kept)["attempts"], 1);
    let reasons = events(&pool, &["message_failed"]);
    assert_eq!(reasons.len(), 2);
    assert!(reasons.iter().all(|event| event["reason"].as_str().unwrap().contains("silent")), "{reasons:?}");
}

/// Asserts that every request a holder can make is refused with a token that is not the current one.
fn is_fenced(pool: &Pool, client: &mut Client, stale: ClaimRef) {
    let kinds = ["message_failed", "message_released", "message_done", "message_dead", "message_claimed"];
    let before = (lasting(pool, stale.id), events(pool, &kinds).len());
    let ways: [fn(&mut Client, ClaimRef) -> Reply; 6] = [
        Client::ack,
        Client::beat,
        |client, held| client.fail(held, Disposition::Retry),
        |client, held| client.fail(held, Disposition::Later(None)),
        |client, held| client.fail(held, Disposition::Dead),
        |client, held| client.fail(held, Disposition::GiveBack),
    ];
    for (n, way) in ways.into_iter().enumerate() {
        let refusal = way(client, stale).expect_err(&format!("way {n}"));
        assert_eq!(refusal.code, ErrorCode::Conflict, "way {n}: {refusal:?}");
    }
    assert_eq!((lasting(pool, stale.id), events(pool, &kinds).len()), before, "nothing changed");
}

#[test]
fn q02_only_the_current_token_says_anything() {
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let mut client = Client::new(&pool);
    let (one, two) = (client.send("a", b"x"), client.send("b", b"x"));
    let first = held(&client.take(&["a"]).unwrap());
    let other = held(&client.take(&["b"]).unwrap());
    assert_eq!((first.id, other.id), (one, two));
    is_fenced(&pool, &mut client, ClaimRef { token: other.token, ..first });
    let Token { epoch, n } = first.token;
    is_fenced(&pool, &mut client, ClaimRef { token: Token { epoch, n: n + 1000 }, ..first });
    client.fail(first, Disposition::Later(Some(0))).unwrap();
    let second = held(&client.await_one(&["a"]));
    assert!(second.token > other.token && other.token > first.token, "Q1");
    is_fenced(&pool, &mut client, first);
    client.ack(second).unwrap();
    is_fenced(&pool, &mut client, first);
    refused(client.beat(second), ErrorCode::Conflict);
    refused(client.ack(ClaimRef { id: MessageId(999_999), ..second }), ErrorCode::Conflict);
    client.ack(other).unwrap();
}

#[test]
fn s07_a_worker_acts_on_its_own_claims_only() {
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let (mut one, mut two) = (Client::generator(&pool, &["a"]), Client::generator(&pool, &["b"]));
    one.send("a", b"x");
    one.send("b", b"y");
    let own = held(&one.take(&["a"]).unwrap());
    let foreign = held(&two.take(&["b"]).unwrap());
    // Whatever it makes of its own token, and of the other's message.
    let Token { epoch, n } = own.token;
    for token in
        [own.token, Token { epoch, n: n + 1 }, Token { epoch, n: 0 }, Token { n, ..Token::default() }]
    {
        if token != foreign.token {
            is_fenced(&pool, &mut one, ClaimRef { token, ..foreign });
        }
    }
    assert_eq!(shown(&pool, foreign.id)["claim"]["token"], json!(foreign.token.to_string()));
    two.beat(foreign).unwrap();
    two.ack(foreign).unwrap();
    one.ack(own).unwrap();
}

#[test]
fn q05_what_is_said_twice_is_answered_alike() {
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let mut client = Client::new(&pool);
    let id = client.send("a", b"x");
    client.send("a", b"y");
    // The repeated claim, over another connection and another daemon too.
    let same = op();
    let first = client.claims(Some(same.clone()), claiming(&[], 1, PATIENCE));
    assert_eq!(client.claims(Some(same.clone()), claiming(&[], 1, PATIENCE)), first);
    pool.restart_poold();
    let mut client = Client::new(&pool);
    assert_eq!(client.claims(Some(same.clone()), claiming(&[], 1, PATIENCE)), first);
    assert_eq!(shown(&pool, id)["attempts"], 1);
    // The failure: repeating it does not fail the next attempt.
    let claim = held(&first[0]);
    let answer = client.fail(claim, Disposition::Later(Some(0))).unwrap();
    assert_eq!(client.fail(claim, Disposition::Later(Some(0))).unwrap(), answer);
    let second = held(&client.await_one(&[]));
    assert_eq!((second.id, shown(&pool, id)["attempts"].clone()), (id, json!(2)));
    refused(client.fail(claim, Disposition::Later(Some(0))), ErrorCode::Conflict);
    // The ack, likewise.
    let answer = client.ack(second).unwrap();
    assert_eq!(client.ack(second).unwrap(), answer);
    pool.restart_poold();
    let mut client = Client::new(&pool);
    assert_eq!(client.ack(second).unwrap(), answer);
    refused(client.fail(second, Disposition::Retry), ErrorCode::Conflict);
    assert_eq!(events(&pool, &["message_done"]).len(), 1);
    // A message no longer held is not given out again under the old operation id: the next one is.
    let next = client.claims(Some(same), claiming(&[], 1, PATIENCE));
    assert_ne!(next[0].message.id, id);
}

/// Lets an unregistered client in another process claim the next message.
#[track_caller]
fn claimed_by(rpc: &mut Talk) -> (u64, String) {
    let before = rpc.lines().len();
    rpc.say(r#"{"claim":{"session":"web","kinds":[],"max":1,"lease_ms":null,"wait_ms":20000}}"#);
    wait_until("it has claimed", PATIENCE, || rpc.lines().len() > before);
    let answer: Value = serde_json::from_str(&rpc.lines()[before]).unwrap();
    let message = &answer["ok"]["claimed"][0]["message"];
    let token = message["status"]["token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    (message["id"].as_u64().unwrap(), token)
}

#[test]
fn l06_what_a_killed_worker_held_is_free_at_once() {
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let id = send(&pool, "a", "text");
    let mut client = Client::new(&pool);
    let mut tokens: Vec<Token> = Vec::new();
    // A client, and a worker in the middle of a handler.
    let mut holder = rpc(&pool);
    let (claimed, token) = claimed_by(&mut holder);
    assert_eq!(claimed.to_string(), id);
    tokens.push(token.parse().unwrap());
    send_signal(holder.pid(), Signal::SIGKILL);
    await_state(&pool, &id, "queued");
    let pid = pool.path("pid");
    let registered = worker(&pool, &[], &format!("echo $$ >{}; exec sleep 1000", pid.display()));
    let handler = pool.await_file(&pid, |bytes| bytes.ends_with(b"\n"));
    let handler: u32 = String::from_utf8(handler).unwrap().trim().parse().unwrap();
    tokens.push(shown(&pool, &id)["claim"]["token"].as_str().unwrap().parse().unwrap());
    send_signal(registered.pid(), Signal::SIGKILL);
    let third = client.await_one(&[]);
    wait_until("its handler ends with it", PATIENCE, || gone(handler));
    tokens.push(held(&third).token);
    assert!(tokens.is_sorted_by(|a, b| a < b), "Q1: {tokens:?}");
    assert_eq!(third.message.status.attempts, 3);
    let failed = events(&pool, &["message_failed"]);
    // The claims ended because the workers were proved dead, not by the end of a connection or lease.
    assert_eq!(
        failed.iter().map(|event| event["reason"].as_str().unwrap()).collect::<Vec<_>>(),
        ["its worker died"; 2]
    );
    client.ack(held(&third)).unwrap();
}

#[test]
fn l06_what_was_held_over_a_connection_that_ended_is_free_after_a_moment_unless_it_is_heard_of() {
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let (mut client, mut other) = (Client::new(&pool), Client::new(&pool));
    let (heard, lost) = (client.send("heard", b"x"), client.send("lost", b"x"));
    let claimed = client.claims(None, claiming(&[], 2, PATIENCE));
    assert_eq!(claimed.len(), 2);
    drop(client);
    // This process lives on, so whether anyone is working is unknown.
    assert!(other.take(&[]).is_none());
    other.beat(held(&claimed[0])).unwrap();
    let again = other.await_one(&[]);
    assert_eq!(again.message.id, lost);
    assert_eq!(state(&pool, heard), "claimed");
    other.ack(held(&claimed[0])).unwrap();
    refused(other.ack(held(&claimed[1])), ErrorCode::Conflict);
    other.ack(held(&again)).unwrap();
}

#[test]
fn l03_a_claim_outlives_the_daemon_and_its_lease_begins_anew() {
    let pool = pool(AT_ONCE);
    let mut client = Client::new(&pool);
    let id = client.send("a", b"x");
    let lease = Duration::from_secs(4);
    let claim = Claim { lease_ms: Some(4000), ..claiming(&[], 1, PATIENCE) };
    let claimed = client.claims(None, claim).remove(0);
    pool.kill9(Program::Poold);
    // No worker can be heard for longer than the lease.
    let away = Instant::now();
    thread::sleep(lease + Duration::from_millis(200));
    assert!(away.elapsed() > lease);
    pool.start(Program::Poold);
    wait_until("poold listens", PATIENCE, || std::os::unix::net::UnixStream::connect(pool.socket()).is_ok());
    let mut client = Client::new(&pool);
    client.beat(held(&claimed)).unwrap();
    assert!(client.take(&[]).is_none(), "no second holder");
    client.ack(held(&claimed)).unwrap();
    let done = shown(&pool, id);
    assert_eq!((&done["state"], &done["attempts"]), (&json!("done"), &json!(1)));
    assert_eq!(events(&pool, &["message_failed"]).len(), 0);
}

#[test]
fn l03_a_worker_works_on_while_the_daemon_is_away() {
    let pool = pool(AT_ONCE);
    let ids: Vec<String> = (0..2).map(|n| send(&pool, "a", &n.to_string())).collect();
    let (runs, go) = (pool.path("runs"), pool.path("go"));
    let script = format!(
        "echo $POOL_MESSAGE_ID >>{}; until [ -e {} ]; do sleep 0.01; done",
        runs.display(),
        go.display()
    );
    let mut worker = worker(&pool, &["--until-empty"], &script);
    pool.await_file(&runs, |bytes| bytes.ends_with(b"\n"));
    for _ in 0..3 {
        pool.restart_poold();
        assert_eq!(state(&pool, &ids[0]), "claimed");
        wait_until("it is shown with its claim", PATIENCE, || {
            let views = pool.lines(&["generators", "web"]);
            let mut workers = views.iter().filter(|view| view["role"] == "worker");
            workers.any(|view| view["holds"][0]["id"].as_u64() == ids[0].parse().ok())
        });
    }
    std::fs::write(&go, "").unwrap();
    assert_eq!(worker.await_end(), Some(0));
    for id in &ids {
        let done = shown(&pool, id);
        assert_eq!((&done["state"], &done["attempts"]), (&json!("done"), &json!(1)), "{done}");
    }
    assert_eq!(
        std::fs::read_to_string(&runs).unwrap().lines().collect::<Vec<_>>(),
        ids,
        "each once, in order"
    );
}

#[test]
fn l04_a_stopped_worker_is_ended_before_its_message_goes_to_the_next() {
    let pool = Pool::with(&format!("{AT_ONCE}[reaper]\ngrace = '200ms'\n"));
    session(&pool, "web");
    let id = send(&pool, "a", "text");
    let pids = pool.path("pids");
    // The handler, and a process it has detached from entirely.
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM; echo $$ >>{0}; while :; do sleep 1; done' &); echo $$ >>{0}; \
         until [ $(wc -l <{0}) = 2 ]; do sleep 0.01; done; exec sleep 1000",
        pids.display()
    );
    let holder = worker(&pool, &["--lease", "6s"], &script);
    let found = pool.await_file(&pids, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count() == 2);
    let mut doomed: Vec<u32> =
        String::from_utf8(found).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
    doomed.push(holder.pid());
    let token: Token = shown(&pool, &id)["claim"]["token"].as_str().unwrap().parse().unwrap();
    send_signal(holder.pid(), Signal::SIGSTOP);
    let mut client = Client::new(&pool);
    let next = client.await_one(&[]);
    let left: Vec<&u32> = doomed.iter().filter(|pid| alive(**pid)).collect();
    for pid in doomed.iter().filter(|pid| **pid != holder.pid()) {
        send_signal(*pid, Signal::SIGKILL);
    }
    assert!(left.is_empty(), "the message was given out while {left:?} of {doomed:?} live");
    assert!(held(&next).token > token);
    client.ack(held(&next)).unwrap();
    let kinds: Vec<String> = pool.event_kinds("web");
    let of = |kind: &str| {
        kinds.iter().position(|found| found == kind).unwrap_or_else(|| panic!("{kind}: {kinds:?}"))
    };
    let order =
        ["message_claimed", "message_revoking", "reap_started", "reap_finished", "message_failed"].map(of);
    assert!(order.is_sorted(), "{kinds:?}");
    assert_eq!(pool.lifecycle("web"), "live", "its session has nothing to do with it");
}

#[test]
fn l04_l05_without_a_reaper_a_stopped_worker_is_shown_and_fenced_and_nobody_else_gets_its_message() {
    let pool = pool(AT_ONCE);
    let id = send(&pool, "a", "text");
    let after = send(&pool, "a", "after");
    let started = pool.path("started");
    let holder = worker(&pool, &["--lease", "3s"], &format!(": >{}; exec sleep 1000", started.display()));
    wait_until("it runs", PATIENCE, || started.exists());
    send_signal(holder.pid(), Signal::SIGSTOP);
    wait_until("it is stopped", PATIENCE, || is_stopped(holder.pid()));
    await_state(&pool, &id, "revoking");
    let mut client = Client::new(&pool);
    assert!(client.take(&[]).is_none());
    let problems = pool.status()["problems"].to_string();
    assert!(problems.contains("silent"), "{problems}");
    pool.restart_poold();
    let mut client = Client::new(&pool);
    assert_eq!(state(&pool, &id), "revoking");
    assert!(client.take(&[]).is_none(), "neither it nor what comes behind it");
    assert_eq!(state(&pool, &after), "queued");
    // Resumed, it learns that it lost the message and settles nothing.
    send_signal(holder.pid(), Signal::SIGCONT);
    wait_until("it says so", PATIENCE, || holder.lines().iter().any(|line| line.contains("\"stale\"")));
    assert_eq!(state(&pool, &id), "revoking", "it lives on");
    let (pid, mut waits) = (holder.pid(), rpc(&pool));
    send_signal(pid, Signal::SIGKILL);
    wait_until("it is gone", PATIENCE, || !alive(pid));
    assert!(client.take(&[]).is_none(), "what it has started may live on");
    pool.start(Program::Reaper);
    let (next, _) = claimed_by(&mut waits);
    assert_eq!(next.to_string(), id, "its end is proved");
}

#[test]
fn l05_a_registered_holder_of_this_process_is_fenced_after_its_lease() {
    let pool = pool(AT_ONCE);
    let mut generator = Client::generator(&pool, &["a"]);
    let id = generator.send("a", b"x");
    let claimed = generator.claims(None, short(claiming(&["a"], 1, PATIENCE)));
    let stale = held(&claimed[0]);
    await_state(&pool, id, "revoking");
    is_fenced(&pool, &mut generator, stale);
    let views = pool.lines(&["generators", "web"]);
    let mine = views.iter().find(|view| view["role"] == "worker").unwrap_or_else(|| panic!("{views:?}"));
    assert_eq!((&mine["kinds"], &mine["pid"]), (&json!(["a"]), &json!(std::process::id())));
    // A user may decide.
    pool.ok(&["queue", "cancel", "web", &id.to_string()]);
    assert_eq!(state(&pool, id), "cancelled");
}

#[test]
fn q01_a_message_that_was_cancelled_in_work_is_retried_once_its_handler_has_ended() {
    let pool = pool("");
    let id = Client::new(&pool).send("a", b"x").to_string();
    let handler = format!("echo $$ >>{}; exec sleep 1000", pool.path("pids").display());
    let mut command = pool.poolctl();
    let worker = Talk::start(command.args(["work", "web", "--kind", "a", "--", "sh", "-c", &handler]));
    let noted = pool.await_file("pids", |text| text.ends_with(b"\n"));
    let pid: u32 = String::from_utf8(noted).unwrap().trim().parse().unwrap();
    pool.ok(&["queue", "cancel", "web", &id]);
    let refused = pool.ctl(&["queue", "retry", "web", &id]).expect(4);
    assert!(refused.stderr.contains("may still run"), "{}", refused.stderr);
    drop(worker);
    wait_until("its worker is proved dead", PATIENCE, || pool.ctl(&["queue", "retry", "web", &id]).code == 0);
    wait_until("its handler went with its worker", PATIENCE, || gone(pid));
    await_state(&pool, &id, "queued");
}

#[test]
fn q01_a_message_has_one_holder_at_a_time_whatever_happens() {
    const KINDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    const EACH: usize = 12;
    const WORKERS: usize = 5;
    let pool = pool(&format!("{AT_ONCE}{LONG}"));
    let mut client = Client::new(&pool);
    let mut ids = Vec::new();
    for n in 0..EACH {
        ids.extend(
            KINDS.map(|kind| client.sent(Send { priority: (n % 3) as i8, ..sending(kind, b"x") }).unwrap()),
        );
    }
    // Records for each message which worker got it, and when. Every third is failed, and worked by the next.
    let work = |worker: usize| {
        let mut client = Client::new(&pool);
        let mut taken: Vec<ClaimRef> = Vec::new();
        while let Some(claimed) = client.claims(None, claiming(&[], 1, Duration::from_millis(300))).pop() {
            let claim = held(&claimed);
            taken.push(claim);
            match (taken.len() + worker) % 3 {
                0 => client.fail(claim, Disposition::Later(Some(0))).unwrap(),
                _ => client.ack(claim).unwrap(),
            };
        }
        taken
    };
    let taken: Vec<ClaimRef> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|n| scope.spawn(move || work(n))).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let mut tokens: Vec<Token> = taken.iter().map(|claim| claim.token).collect();
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), taken.len(), "no token is given twice");
    for id in &ids {
        assert_eq!(state(&pool, id), "done");
    }
    // The journal shows that a claim begins only while no other is open.
    let mut open: std::collections::BTreeSet<u64> = Default::default();
    for event in events(&pool, &["message_claimed", "message_failed", "message_done"]) {
        let id = event["id"].as_u64().unwrap();
        let fits = if event["kind"] == "message_claimed" { open.insert(id) } else { open.remove(&id) };
        assert!(fits, "{event}");
    }
    assert!(open.is_empty());
}
