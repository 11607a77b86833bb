//! `poold` dies at any step of the queue's work, under load. An answer that was given holds; a client without
//! one asks again and gets exactly one.

use std::thread;

use protocol::blocking::Connection;
use protocol::request::{Claim, Register, Send};
use protocol::{Hello, OpId, Request, Role, SessionRef};

use super::load::Load;
use super::support::crashing;
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, number, wait_until};
use crate::queue::support::sending;

/// Rounds at each crash point; `POOL_CRASH_ROUNDS` sets more.
const ROUNDS: usize = 3;
/// Exit code of an abort.
const ABORTED: i32 = 134;
/// Finished messages that a `poold` that is to die keeps.
const KEPT: usize = 5;
/// Pools running at a time.
const LANES: usize = 4;

/// Crash points; `:N` means the N-th time it is reached, where that makes a difference.
const POINTS: [&str; 16] = [
    "commit-begin",
    "commit-begin:7",
    "commit-written",
    "commit-written:7",
    "send-stored:3",
    "claim-given",
    "claim-given:4",
    "claim-kept:2",
    "ack-stored",
    "ack-stored:3",
    "fail-stored",
    "claim-lapsed",
    "claim-revoked",
    "worker-died",
    "journal-trim",
    "forget",
];

/// Configuration that keeps `keep_count` finished messages: few for a `poold` that is to die, so that it has
/// to forget some.
fn config(keep_count: usize) -> String {
    format!(
        "[queue]\nmax_messages = 1000000\nkeep_count = {keep_count}\nmax_attempts = 1000\nretry_backoff = '0ms'\n\
         breaker_failures = 0\n[events]\nkeep = 100000000\n"
    )
}

#[track_caller]
fn under_load() -> Pool {
    let pool = Pool::bare(&config(1_000_000));
    pool.start_poold();
    pool.script("web", "exec sleep 1000");
    pool
}

/// Starts a `poold` that dies at each of the points in turn, then one that goes on.
#[track_caller]
fn crash(pool: &Pool, load: &Load, points: &[&str]) {
    for point in points {
        pool.kill9(Program::Poold);
        pool.configure(&config(KEPT));
        pool.start_as(Program::Poold, crashing(pool, point));
        let code = match *point {
            "claim-revoked" => {
                let _holder = registered(pool);
                end(pool, point)
            }
            "worker-died" => {
                killed(pool);
                end(pool, point)
            }
            _ => end(pool, point),
        };
        assert_eq!(code, ABORTED, "{point}: {}", pool.logs());
    }
    pool.kill9(Program::Poold);
    pool.configure(&config(1_000_000));
    pool.start_poold();
    let before = load.done();
    wait_until("work goes on", PATIENCE, || load.done() > before + KEPT);
}

#[track_caller]
fn end(pool: &Pool, point: &str) -> i32 {
    eventually(&format!("poold comes to {point}"), PATIENCE, || pool.ended(Program::Poold))
}

const HELD: &str = "held";

/// Registers a worker in this process that claims a message and sends no heartbeat for longer than its lease.
fn registered(pool: &Pool) -> Option<Connection> {
    wait_until("it listens", PATIENCE, || std::os::unix::net::UnixStream::connect(pool.socket()).is_ok());
    let hello = Hello::new(Role::Generator, "", "test");
    let mut connection = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).ok()?.0;
    connection.set_timeout(Some(PATIENCE));
    let session = || SessionRef("web".to_owned());
    let register = Register { scope: session().into(), kinds: Vec::new() };
    connection.call(None, None, Request::Register(register)).ok()?.ok()?;
    let pid = pool.pid(Program::Poold).unwrap();
    // A fresh kind each time: the previous message is not given out again while this process lives.
    let kind = format!("{HELD}-{pid}");
    let send = Send { session: session(), ..sending(&kind, b"text") };
    connection.call(Some(OpId::Named(kind.clone())), None, Request::Send(send)).ok()?.ok()?;
    let claim =
        Claim { scope: session().into(), kinds: vec![kind], max: 1, lease_ms: Some(1000), wait_ms: 10_000 };
    connection.call(None, None, Request::Claim(claim)).ok()?.ok()?;
    Some(connection)
}

/// Kills a worker in the middle of a handler.
fn killed(pool: &Pool) {
    wait_until("it listens", PATIENCE, || std::os::unix::net::UnixStream::connect(pool.socket()).is_ok());
    let started = pool.path(format!("started-{}", pool.pid(Program::Poold).unwrap()));
    pool.ok(&["send", "web", "--kind", HELD, "text"]);
    let script = format!(": >{}; exec sleep 1000", started.display());
    let worker = Talk::start(pool.poolctl().args(["work", "web", "--kind", HELD, "--", "sh", "-c", &script]));
    wait_until("it works", PATIENCE, || started.exists());
    worker.end();
}

#[test]
#[ignore = "a campaign, run by scripts/soak: the simulator crashes at every step"]
fn d01_q01_a_crash_at_any_step_of_the_queue_keeps_what_was_told() {
    let rounds = number("POOL_CRASH_ROUNDS", ROUNDS);
    let each = |point: &&str| {
        let (pool, load) = (under_load(), Load::default());
        thread::scope(|scope| {
            let running = load.start(scope, &pool);
            wait_until("something is worked", PATIENCE, || load.done() > 2 * KEPT);
            (0..rounds).for_each(|_| crash(&pool, &load, &[point]));
            drop(running);
        });
        load.holds(&pool);
    };
    in_lanes(&POINTS, &each);
}

#[test]
#[ignore = "a campaign, run by scripts/soak: the simulator crashes at every step"]
fn d06_a_crash_of_the_recovery_itself_however_often_makes_no_difference() {
    let rounds = number("POOL_CRASH_ROUNDS", ROUNDS);
    let (pool, load) = (under_load(), Load::default());
    thread::scope(|scope| {
        let running = load.start(scope, &pool);
        let again =
            ["commit-written:9", "recover-begin", "recover-written", "recover-begin", "recover-written"];
        (0..rounds).for_each(|_| crash(&pool, &load, &again));
        drop(running);
    });
    load.holds(&pool);
    let epoch = pool.status()["epoch"].as_u64().unwrap();
    assert!(epoch > 2 * rounds as u64, "each start that got so far has a number of its own");
}

/// Runs `each` for every point, several at a time.
fn in_lanes(points: &[&str], each: &(impl Fn(&&str) + Sync)) {
    thread::scope(|scope| {
        for lane in 0..LANES {
            scope.spawn(move || points.iter().skip(lane).step_by(LANES).for_each(each));
        }
    });
}
