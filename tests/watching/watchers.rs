//! One watcher at a time; another takes over cleanly; a pool without one says so and observes tmux itself. The
//! period of reads of the whole server, and their lines in the logs.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{NO_SWEEP, await_connection, await_event, seen, watch};
use crate::harness::{PATIENCE, Pool, Program, Talk, alive, wait_until};

fn watcher(pool: &Pool) -> Value {
    pool.status()["components"][0].clone()
}

/// Starts another watcher that takes over; returns its pid.
#[track_caller]
fn take_over(pool: &Pool) -> u32 {
    let mut command = pool.daemon(Program::Watch);
    command.arg("--take-over");
    pool.start_as(Program::Watch, command)
}

/// Asserts that a watcher works: it reports a new foreign session.
#[track_caller]
fn assert_watched(pool: &Pool, name: &str) {
    pool.tmux_text(&["new-session", "-d", "-s", name, "exec cat"]);
    await_event(pool, "foreign_seen", |event| event["name"] == name);
}

#[test]
fn w14_a_second_watcher_waits_and_one_that_takes_over_is_the_one() {
    let pool = Pool::with(NO_SWEEP);
    pool.script("web", "exec cat");
    let first = pool.pid(Program::Watch).unwrap();
    let count = |kind: &str| pool.lines(&["events", "--kind", kind]).len();
    let (lost, connected) = (count("watcher_lost"), count("watcher_connected"));
    let second = pool.start(Program::Watch);
    wait_until("it was refused", PATIENCE, || pool.logs().contains("watches already"));
    assert_eq!(watcher(&pool)["pid"], first);
    assert_eq!((count("watcher_lost"), count("watcher_connected")), (lost, connected));
    pool.end_one(second, Signal::SIGTERM);
    let third = take_over(&pool);
    wait_until("it took over", PATIENCE, || watcher(&pool)["pid"] == third);
    wait_until("it has seen tmux", PATIENCE, || pool.status()["tmux"]["state"] == "up");
    assert_eq!((count("watcher_lost"), count("watcher_connected")), (lost + 1, connected + 1));
    assert_watched(&pool, "mark1");
    assert!(alive(first), "the replaced watcher waits");
    for _ in 0..3 {
        pool.ok(&["sync"]);
        assert_eq!(watcher(&pool)["pid"], third, "and does not fight for it");
    }
    pool.end_one(third, Signal::SIGKILL);
    wait_until("it serves again", PATIENCE, || watcher(&pool)["pid"] == first);
    pool.await_complete();
    assert_watched(&pool, "mark2");
    assert_eq!((count("watcher_lost"), count("watcher_connected")), (lost + 2, connected + 2));
    let told = pool.lines(&["events", "--kind", "watcher_lost"]);
    assert!(told.iter().all(|event| event["reason"].as_str().is_some_and(|why| !why.is_empty())), "{told:?}");
}

#[test]
fn w14_two_that_take_over_at_once_end_with_one() {
    let pool = Pool::with(NO_SWEEP);
    pool.script("web", "exec cat");
    let others = [take_over(&pool), take_over(&pool)];
    wait_until("one of them is it", PATIENCE, || {
        let pid = watcher(&pool)["pid"].clone();
        others.iter().any(|other| pid == *other) && pool.status()["tmux"]["state"] == "up"
    });
    wait_until("it stays", PATIENCE, || {
        let before = pool.lines(&["events", "--kind", "watcher_connected"]).len();
        (0..5).for_each(|_| drop(pool.json(&["sync"])));
        pool.lines(&["events", "--kind", "watcher_connected"]).len() == before
    });
    assert_watched(&pool, "mark");
}

#[test]
fn w23_without_a_watcher_what_is_shown_was_looked_at() {
    let pool = Pool::with(NO_SWEEP);
    let ids: Vec<String> = ["1", "22", "web"].map(|name| pool.script(name, "exec cat")).into();
    pool.ok(&["sync"]);
    pool.kill9(Program::Watch);
    wait_until("it is missed", PATIENCE, || watcher(&pool)["connected"] == false);
    let status = pool.ctl(&["--json", "status"]).expect(1).json();
    assert!(status["components"][0]["since"].is_string(), "{status}");
    assert!(status["problems"].to_string().contains("tmux-watch is not connected"), "{status}");
    assert!(pool.ctl(&["status"]).expect(1).stdout.contains("unverified since"));
    // A numeric name means exactly that name.
    pool.tmux_text(&["kill-session", "-t", "=1"]);
    wait_until("show says so", PATIENCE, || pool.lifecycle("1") != "live");
    pool.tmux_text(&["kill-session", "-t", "=22"]);
    wait_until("ls says so", PATIENCE, || {
        let listed = pool.lines(&["ls", "--all"]);
        listed.iter().any(|session| session["name"] == "22" && session["lifecycle"] != "live")
    });
    assert_eq!(pool.lifecycle("web"), "live");
    assert!(pool.show("web")["verified_at"].is_string());
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    let keys = pool.ctl(&["keys", "web", "x"]);
    assert!([1, 5].contains(&keys.code), "what acts looks first: {keys:?}");
    pool.start(Program::Watch);
    for id in &ids {
        pool.await_lifecycle(id, "stopped");
    }
    pool.await_complete();
}

#[test]
fn w24_without_a_watcher_a_subscriber_is_told_how_it_stands() {
    let pool = Pool::with(NO_SWEEP);
    pool.script("web", "exec cat");
    pool.ok(&["sync"]);
    let told = watch(&pool);
    wait_until("it has the state", PATIENCE, || told.lines().iter().any(|line| line.contains("\"web\"")));
    pool.kill9(Program::Watch);
    wait_until("it is missed", PATIENCE, || watcher(&pool)["connected"] == false);
    pool.ok(&["ls"]);
    assert_eq!(seen(&pool).sessions.len(), 1, "what the pool itself looked at");
    pool.start(Program::Watch);
    pool.await_complete();
    assert_watched(&pool, "mark");
    wait_until("the subscriber goes on", PATIENCE, || {
        told.lines().iter().any(|line| line.contains("\"mark\""))
    });
}

#[test]
fn w24_a_subscriber_ends_with_its_reader_and_with_poold() {
    let pool = Pool::new();
    pool.script("web", "exec cat");
    // Its reader takes one line and exits.
    let mut shell = pool.command("sh");
    shell.arg("-c").arg("\"$0\" watch --print | head -n 1; exit 0").arg(env!("CARGO_BIN_EXE_poolctl"));
    let first = crate::harness::Output::of(&mut shell, b"").expect(0);
    assert_eq!(first.stdout.lines().count(), 1);
    let mut left = Talk::start(pool.poolctl().args(["--timeout", "4s", "watch"]));
    wait_until("it shows the state", PATIENCE, || left.lines().iter().any(|line| line.contains("web")));
    pool.kill9(Program::Poold);
    assert_eq!(left.await_end(), Some(7), "{}", left.errors());
    pool.start(Program::Poold);
    pool.await_complete();
    pool.ctl(&["watch", "--no-such"]).expect(2);
}

#[test]
fn w24_a_subscriber_goes_on_with_the_next_poold() {
    let pool = Pool::with(NO_SWEEP);
    pool.script("web", "exec cat");
    let told = Talk::start(pool.poolctl().args(["--timeout", "30s", "watch"]));
    wait_until("it shows the state", PATIENCE, || told.lines().iter().any(|line| line.contains("web")));
    pool.restart_poold();
    pool.await_complete();
    pool.tmux_text(&["new-session", "-d", "-s", "mark", "exec cat"]);
    wait_until("it goes on", PATIENCE, || told.lines().iter().any(|line| line.contains("mark")));
    let lines = told.lines();
    assert!(!lines.iter().any(|line| line.contains(" - ")), "nothing was ever gone: {lines:#?}");
}

#[test]
fn t02_tmux_is_read_at_the_configured_period_and_the_time_of_it_is_known() {
    let pool = |sweep: &str| {
        let pool = Pool::with(&format!("[watch]\nsweep = {sweep:?}\n[reaper]\ngrace = \"500ms\"\n"));
        pool.script("web", "exec sleep 1000");
        await_connection(&pool, "native");
        pool.ok(&["sync"]);
        pool
    };
    let verified = |pool: &Pool| pool.show("web")["verified_at"].as_str().unwrap().to_owned();
    let (often, rarely) = (pool("300ms"), pool("10m"));
    let first = verified(&rarely);
    for _ in 0..8 {
        let last = verified(&often);
        wait_until("it was read again, though nothing happened", PATIENCE, || verified(&often) > last);
    }
    assert_eq!(verified(&rarely), first, "the same pool with another period was not read meanwhile");
}

#[test]
fn t12_each_sync_is_logged_with_what_it_saw_and_how_long_it_took() {
    let pool = Pool::bare(NO_SWEEP);
    for program in Program::ALL {
        let mut daemon = pool.daemon(program);
        daemon.env("POOL_LOG", "debug");
        pool.start_as(program, daemon);
    }
    pool.await_complete();
    pool.script("web", "exec sleep 1000");
    pool.tmux_text(&["new-session", "-d", "-s", "theirs", "exec sleep 1001"]);
    pool.ok(&["sync"]);
    let logged = |log: &str, words: &[&str]| {
        pool.await_file(log, |text| {
            let text = String::from_utf8_lossy(text);
            text.lines().any(|line| words.iter().all(|word| line.contains(word)))
        });
    };
    logged("poold.log", &["synced by=\"tmux-watch\" sessions=2 panes=2 foreign=1 changed=", "took="]);
    logged("tmux-watch.log", &["read the whole server", "took="]);
}

#[test]
fn a_watcher_gets_changed_settings_with_the_configuration() {
    let pool = Pool::new();
    pool.script("web", "exec cat");
    let connected = || pool.lines(&["events", "--kind", "watcher_connected"]).len();
    let (before, pid) = (connected(), watcher(&pool)["pid"].clone());
    pool.reload("[watch]\nheartbeat = '500ms'\n");
    wait_until("it has connected again", PATIENCE, || connected() > before);
    wait_until("it is the same one", PATIENCE, || watcher(&pool)["pid"] == pid);
    assert!(!pool.ok(&["config", "show"]).contains("Not in force"), "at once");
    assert_watched(&pool, "theirs");
}
