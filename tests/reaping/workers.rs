//! Registered workers without a claim: a silent one is ended with everything it started, one that waits for
//! messages or sends heartbeats never is; successive generations are told apart.
//!
//! The end of a worker that is silent about a message, before the next gets it, is tested with the claims
//! (`queue::leases`).

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;
use protocol::blocking::Connection;
use protocol::request::{Ack, Claim, ClaimRef, Register};
use protocol::{Hello, Request, Role, SessionRef};
use serde_json::{Value, json};

use super::held::{events, found, lines_of};
use crate::faults::support::Stopped;
use crate::harness::{PATIENCE, Pool, Program, Talk, alive, gone, send_signal, wait_until};

const CONFIG: &str = "[reaper]\ninterval = '100ms'\ngrace = '200ms'\nstale_worker = '6s'\n";
/// Variable that tells a worker process how to behave.
const HOW: &str = "TEST_WORKER";

/// Not a test: the worker that some of the tests start as a process of its own. It registers, starts a
/// detached process, reports both pids, and then stays silent, waits for messages or sends heartbeats.
#[test]
#[ignore = "started by other tests"]
fn a_worker() {
    let (Some(how), Some(said)) = (env::var_os(HOW), env::var_os("TEST_SAID")) else { return };
    let socket = PathBuf::from(env::var_os("POOL_SOCKET").unwrap());
    let (mut connection, _) =
        Connection::connect_within(&socket, &Hello::new(Role::Generator, "", "test"), Some(PATIENCE))
            .unwrap();
    connection.set_timeout(Some(Duration::from_secs(120)));
    let session = || SessionRef("web".to_owned());
    let kinds = vec![how.to_str().unwrap().to_owned()];
    let register = Request::Register(Register { scope: session().into(), kinds: kinds.clone() });
    connection.call(None, None, register).unwrap().unwrap();
    let mut child = Command::new("setsid").args(["sleep", "1000"]).spawn().unwrap();
    std::fs::write(said, format!("{}\n{}\n", std::process::id(), child.id())).unwrap();
    let lease_ms = Some(3_600_000);
    let claim = |wait_ms| Claim { scope: session().into(), kinds: kinds.clone(), max: 1, lease_ms, wait_ms };
    match how.to_str().unwrap() {
        // Claims repeatedly, as `poolctl work` does, but at shorter intervals.
        "waits" => loop {
            connection.call(None, None, Request::Claim(claim(4500))).unwrap().unwrap();
        },
        "beats" => beats(&mut connection),
        // Sends heartbeats from the moment it is asked to.
        "prompted" => {
            let file = env::var_os("TEST_PROMPT").map(PathBuf::from).unwrap();
            wait_until("it is prompted", PATIENCE * 4, || file.exists());
            beats(&mut connection);
        }
        "holds" => drop(connection.call(None, None, Request::Claim(claim(60_000))).unwrap().unwrap()),
        _ => {}
    }
    drop(child.wait());
}

/// Sends heartbeats until killed.
fn beats(connection: &mut Connection) -> ! {
    loop {
        connection.call(None, None, Request::Heartbeat(Vec::new())).unwrap().unwrap();
        thread::sleep(Duration::from_millis(50));
    }
}

/// A running worker and the process it started.
struct Worker {
    talk: Talk,
    child: u32,
}

impl Worker {
    #[track_caller]
    fn start(pool: &Pool, how: &str) -> Self {
        let said = pool.path(format!("said.{how}"));
        drop(std::fs::remove_file(&said));
        let mut command = pool.command(env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "reaping::workers::a_worker", "--nocapture"]);
        command.env(HOW, how).env("TEST_SAID", &said).env("POOL_SOCKET", pool.socket());
        let talk = Talk::start(command.env("TEST_PROMPT", pool.path("prompt")));
        let pids = pool.await_file(&said, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count() == 2);
        let pids: Vec<u32> =
            String::from_utf8(pids).unwrap().lines().map(|pid| pid.parse().unwrap()).collect();
        assert_eq!(pids[0], talk.pid());
        Self { talk, child: pids[1] }
    }

    fn lives(&self) -> bool {
        alive(self.talk.pid()) && alive(self.child)
    }

    fn is_gone(&self) -> bool {
        gone(self.talk.pid()) && gone(self.child)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if alive(self.child) {
            send_signal(self.child, Signal::SIGKILL);
        }
    }
}

#[track_caller]
fn pool(config: &str) -> Pool {
    let pool = Pool::with(config);
    pool.script("web", "exec sleep 1000");
    pool
}

/// The worker of a kind, as `generators` lists it.
#[track_caller]
fn worker(pool: &Pool, kind: &str) -> Option<Value> {
    let views = pool.lines(&["generators", "web"]);
    views.into_iter().find(|view| view["role"] == "worker" && view["kinds"] == json!([kind]))
}

#[test]
fn c02_a_silent_worker_is_ended_with_what_it_started_and_one_that_waits_or_is_heard_of_never() {
    let pool = pool(CONFIG);
    let (waits, beats) = (Worker::start(&pool, "waits"), Worker::start(&pool, "beats"));
    // `poolctl work` waits longer than a worker may be silent.
    let mut command = pool.poolctl();
    let got = pool.path("got");
    let script = format!("cat >>{}", got.display());
    let own = Talk::start(command.args(["work", "web", "--kind", "note", "--", "sh", "-c", &script]));
    wait_until("it is registered", PATIENCE, || worker(&pool, "note").is_some());
    for _ in 0..2 {
        let silent = Worker::start(&pool, "silent");
        wait_until("it is ended", PATIENCE, || silent.is_gone());
        assert!(waits.lives() && beats.lives() && alive(own.pid()));
    }
    let told = events(&pool, &["stale_found"]);
    assert_eq!(told.len(), 2, "{told:#?}");
    for event in &told {
        assert_eq!((&event["rule"], &event["action"]), (&json!("stale_worker"), &json!("kill")));
        assert!(event["evidence"].as_str().unwrap().contains("silent"), "{event}");
    }
    pool.ok(&["send", "web", "--kind", "note", "text"]);
    wait_until("it works", PATIENCE, || lines_of(&pool, "got") == ["text"]);
    assert_eq!(pool.lifecycle("web"), "live");
    let views = pool.lines(&["generators", "web"]);
    assert_eq!(views.iter().filter(|view| view["role"] == "worker").count(), 3, "{views:#?}");
    drop(own.end());
}

#[test]
fn c02_a_worker_that_is_stopped_while_it_has_nothing_to_do_is_ended() {
    let pool = pool(CONFIG);
    let (beats, other) = (Worker::start(&pool, "beats"), Worker::start(&pool, "waits"));
    let _stopped = Stopped::new(beats.talk.pid());
    wait_until("it is ended, with what it started", PATIENCE, || beats.is_gone());
    assert!(other.lives());
    assert_eq!(found(&pool, pool.show("web")["id"].as_str().unwrap()).len(), 1);
}

#[test]
fn a_silent_worker_is_only_told_where_that_was_said() {
    let pool = pool(&format!("{CONFIG}[reaper.policy]\nstale_worker = 'report'\n"));
    let silent = Worker::start(&pool, "silent");
    wait_until("it is told", PATIENCE, || !events(&pool, &["stale_found"]).is_empty());
    (0..3).for_each(|_| drop(pool.ok(&["reap"])));
    let told = events(&pool, &["stale_found"]);
    assert_eq!((told.len(), &told[0]["action"]), (1, &json!("report")));
    let rules = pool.json(&["reap", "--explain", "web"]);
    let rule = rules["rules"]
        .as_array()
        .unwrap()
        .iter()
        .find(|rule| rule["rule"] == "stale_worker")
        .unwrap()
        .clone();
    assert_eq!((&rule["applies"], &rule["action"]), (&json!(true), &json!("report")));
    assert!(silent.lives());
}

#[test]
fn a_worker_that_is_heard_of_after_it_was_named_is_not_ended() {
    // The reaper does not look by itself.
    let pool = pool("[reaper]\ninterval = '1h'\ngrace = '200ms'\nstale_worker = '5s'\n");
    let heard = Worker::start(&pool, "prompted");
    pool.kill9(Program::Reaper);
    wait_until("it is named", PATIENCE, || {
        let named = pool.json(&["reap"]);
        named["candidates"].as_array().unwrap().iter().any(|candidate| candidate["rule"] == "stale_worker")
    });
    let before = worker(&pool, "prompted").unwrap()["last_activity_at"].clone();
    std::fs::write(pool.path("prompt"), "").unwrap();
    wait_until("it was heard of", PATIENCE, || {
        worker(&pool, "prompted").unwrap()["last_activity_at"] != before
    });
    pool.start(Program::Reaper);
    pool.await_complete();
    // This end was named later and is done, so the worker was considered before.
    pool.ok(&["kill", "web"]);
    assert!(heard.lives());
    assert_eq!(events(&pool, &["stale_found"]).len(), 0);
}

#[test]
fn each_generation_is_told_apart_and_an_older_one_settles_nothing() {
    let pool = pool("[queue]\nretry_backoff = '0ms'\n[reaper]\ngrace = '200ms'\n");
    let agent = || {
        let views = pool.lines(&["generators", "web"]);
        let agent = views.into_iter().find(|view| view["role"] == "agent").unwrap();
        (agent["generation"].as_u64().unwrap(), agent["pid"].as_u64().unwrap())
    };
    let first = agent();
    pool.restart_poold();
    assert_eq!(agent(), first, "it is still the same");
    pool.ok(&["restart", "web"]);
    let second = agent();
    assert!(second.0 > first.0 && second.1 != first.1, "{first:?} {second:?}");
    // The same holds for a worker.
    let id = pool.ok(&["send", "web", "--kind", "holds", "text"]);
    let message = || pool.json(&["queue", "show", "web", &id]);
    let holder = || {
        let started = Worker::start(&pool, "holds");
        wait_until("it has the message", PATIENCE, || message()["state"] == "claimed");
        (
            started,
            message()["claim"]["token"].as_str().unwrap().to_owned(),
            self::worker(&pool, "holds").unwrap(),
        )
    };
    let (older, old, old_view) = holder();
    send_signal(older.talk.pid(), Signal::SIGKILL);
    wait_until("it is free", PATIENCE, || message()["state"] == "queued");
    let (_newer, new, new_view) = holder();
    assert!(new_view["id"].as_u64() > old_view["id"].as_u64(), "{old_view} {new_view}");
    assert_ne!((&old_view["pid"], &old), (&new_view["pid"], &new));
    let hello = Hello::new(Role::Client, "", "test");
    let (mut client, _) = Connection::connect_within(&pool.socket(), &hello, Some(PATIENCE)).unwrap();
    let held = |token: &str| ClaimRef {
        id: protocol::MessageId(id.parse().unwrap()),
        token: token.parse().unwrap(),
    };
    let ack = |token: &str| Request::Ack(Ack { held: held(token), result: None });
    let refused = client.call(None, None, ack(&old)).unwrap().unwrap_err();
    assert_eq!(refused.code, protocol::ErrorCode::Conflict, "{refused:?}");
    assert_eq!(message()["state"], "claimed");
    client.call(None, None, ack(&new)).unwrap().unwrap();
    assert_eq!(message()["state"], "done");
}
