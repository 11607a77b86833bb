//! The tmux server is stopped, unreachable, dead, or replaced by another. What cannot be known is reported as
//! unknown; nothing counts as gone without proof, and no recycled id for the old one.

use std::fs;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{OutOfReach, Stopped, lines_of, panes, recorder, records};
use crate::harness::{PATIENCE, Pool, Program, alive, eventually, gone, send_signal, wait_until};

/// Waits until `status` reports a problem that contains `words`.
#[track_caller]
fn await_fault(pool: &Pool, words: &str) {
    let mut last = String::new();
    let found = || {
        let status = pool.ctl(&["status"]);
        last = status.stdout;
        (status.code == 1 && last.contains(words)).then_some(())
    };
    eventually(&format!("status says {words:?}"), PATIENCE, found);
}

#[track_caller]
fn await_health(pool: &Pool) {
    wait_until("status finds no fault", PATIENCE, || pool.ctl(&["status"]).code == 0);
}

/// File that records the input of the foreign server's pane.
const CANARY: &str = "canary";

/// Starts a foreign tmux server at the pool's socket, whose first pane has the first id; returns its pid.
fn stranger(pool: &Pool) -> u32 {
    let cat = format!("exec cat >{}", pool.path(CANARY).display());
    let mut command = pool.command("tmux");
    command.arg("-u").arg("-S").arg(pool.tmux_socket()).args(["-f", "/dev/null"]);
    let started = command.args(["new-session", "-d", "-s", "web", "sh", "-c", &cat]).status().unwrap();
    assert!(started.success());
    let shown =
        pool.tmux_text(&["display-message", "-p", "-t", "=web:", "#{session_id} #{pane_id} #{pane_pid}"]);
    let [session, pane, pid] = shown.split(' ').collect::<Vec<_>>()[..] else { panic!("{shown}") };
    assert_eq!((session, pane), ("$0", "%0"), "the ids are used again");
    pid.parse().unwrap()
}

#[test]
fn t08_a_stopped_server_hangs_nothing_and_proves_nothing() {
    let pool = Pool::new();
    let id = pool.script("web", &recorder(&pool));
    let doomed = pool.script("doomed", "exec cat");
    wait_until("it reads", PATIENCE, || lines_of(&pool, "runs").len() == 1);
    pool.ok(&["sync"]);
    let before = panes(&pool);
    let stopped = Stopped::new(pool.tmux_pid().unwrap());
    await_fault(&pool, "not seen");
    thread::scope(|scope| {
        let cases: [(&[&str], &[i32]); 6] = [
            (&["--timeout", "20s", "keys", "web", "x", "Enter"], &[7]),
            (&["--timeout", "20s", "capture", "web"], &[7]),
            (&["--timeout", "20s", "new", "late", "--", "cat"], &[7]),
            (&["--timeout", "20s", "rename", "doomed", "other"], &[1, 7]),
            (&["--timeout", "3s", "sync"], &[6, 7]),
            (&["send", "web", "text"], &[0]),
        ];
        for (args, codes) in cases {
            let pool = &pool;
            scope.spawn(move || {
                let output = pool.ctl(args);
                assert!(codes.contains(&output.code), "{output:?}");
            });
        }
        // Reads answer at once.
        for session in [&id, &doomed] {
            assert_eq!(pool.lifecycle(session), "live");
        }
    });
    let adopted = pool.ctl(&["--timeout", "20s", "adopt", "theirs"]).expect(7);
    assert!(adopted.stderr.contains("`kill -CONT "), "{adopted:?}");
    let late = pool.ctl(&["--timeout", "1s", "kill", &doomed]).expect(6);
    assert!(late.stderr.contains("`kill -CONT ") && late.stderr.contains("may still be done"), "{late:?}");
    let killed = pool.ctl(&["--timeout", "30s", "kill", &doomed]);
    assert!([1, 6].contains(&killed.code), "nobody can say yet that its pane is gone: {killed:?}");
    assert_eq!((pool.lifecycle(&id), pool.lifecycle(&doomed)), ("live".to_owned(), "draining".to_owned()));
    drop(stopped);
    pool.await_lifecycle(&doomed, "stopped");
    assert_eq!(pool.lifecycle(&id), "live");
    wait_until("the pane of what lives is left, and no other", PATIENCE, || panes(&pool) == before[..1]);
    let message = pool.lines(&["queue", "ls", "web"]).remove(0);
    wait_until("its delivery is decided", PATIENCE, || {
        let state = pool.json(&["queue", "show", "web", &message["id"].to_string()])["state"].clone();
        state == "done" || state == "in_doubt"
    });
    drop(pool.ctl(&["queue", "resolve", "web", &message["id"].to_string(), "--as", "done"]));
    pool.ok(&["send", "web", "--wait", "done", "next"]);
    let count = |text: &str| lines_of(&pool, "got").iter().filter(|line| line.contains(text)).count();
    wait_until("the next one arrives", PATIENCE, || count("next") == 1);
    // The key whose outcome was unknown may have arrived too, ahead of later input.
    let keys = lines_of(&pool, "got").iter().filter(|line| line.starts_with('x')).count();
    assert!(count("text") <= 1 && keys <= 1, "{:?}", lines_of(&pool, "got"));
    await_health(&pool);
}

#[test]
fn t06_a_deleted_socket_is_no_proof_and_the_server_is_reminded() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.ok(&["sync"]);
    let (before, server) = (panes(&pool), pool.tmux_pid().unwrap());
    let known = records(&pool);
    let _server = OutOfReach(server);
    // A running watcher would make the server recreate its socket at once.
    let watcher = Stopped::new(pool.pid(Program::Watch).unwrap());
    fs::remove_file(pool.tmux_socket()).unwrap();
    pool.ctl(&["keys", &id, "x"]).expect(7);
    pool.ctl(&["capture", &id]).expect(7);
    pool.ctl(&["rename", &id, "other"]).expect(7);
    pool.ctl(&["park", &id]).expect(7);
    let late = pool.ctl(&["new", "late", "--", "cat"]).expect(7);
    let is_named = late.stderr.contains(&format!("kill -USR1 {server}"));
    assert!(is_named, "no second server is started: {}", late.stderr);
    assert!(!pool.tmux_socket().exists());
    assert_eq!(pool.lifecycle(&id), "live");
    // It is on record if no observation had shown the trouble before it.
    drop(pool.ctl(&["rm", "late"]));
    drop(watcher);
    wait_until("the server listens again", PATIENCE, || pool.tmux_pid() == Some(server));
    await_health(&pool);
    assert_eq!((panes(&pool), records(&pool)), (before.clone(), known.clone()));
    // Without a watcher, status tells the user what to do. The next one never saw the server, but `poold` did.
    pool.kill9(Program::Watch);
    fs::remove_file(pool.tmux_socket()).unwrap();
    let remedy = format!("kill -USR1 {server}");
    await_fault(&pool, &remedy);
    let late = pool.ctl(&["new", "late", "--", "cat"]).expect(7);
    assert!(late.stderr.contains(&remedy), "{late:?}");
    pool.ctl(&["show", "late"]).expect(3);
    assert_eq!(pool.ok(&["new", "web", "--reuse"]), id, "nothing is started for it");
    pool.start(Program::Watch);
    wait_until("the server listens again", PATIENCE, || pool.tmux_pid() == Some(server));
    await_health(&pool);
    assert_eq!((panes(&pool), records(&pool)), (before, known));
    pool.ok(&["keys", &id, "x"]);
}

#[test]
fn a_killed_server_loses_its_sessions_and_says_so() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let stubborn = pool.script("stubborn", "trap '' HUP; while :; do sleep 1; done");
    let (agent, _) = pool.pane_pids(&id);
    let (survivor, _) = pool.pane_pids(&stubborn);
    pool.ok(&["sync"]);
    send_signal(pool.tmux_pid().unwrap(), Signal::SIGKILL);
    for (session, process) in [(&id, agent), (&stubborn, survivor)] {
        let shown = pool.await_lifecycle(session, "lost");
        assert_eq!(shown["reason"], "server_gone");
        assert!(gone(process), "what ignores its hang-up is not forgotten: it is ended first");
    }
    for args in [&["keys", &id, "x"][..], &["kill", &id], &["send", &id, "kept"]] {
        let output = pool.ctl(args);
        assert!([0, 5].contains(&output.code), "{output:?}");
    }
    pool.ok(&["restart", &id]);
    assert_eq!(pool.lifecycle(&id), "live");
    pool.ok(&["restore", "--all"]);
    await_health(&pool);
}

#[test]
fn nobody_is_told_to_wake_a_server_that_is_proved_dead() {
    // What is deaf is being ended all the while.
    let pool = Pool::with("[reaper]\ngrace = '8s'\n");
    let id = pool.script("deaf", "trap '' HUP TERM; while :; do sleep 1; done");
    let killed = pool.script("killed", "trap '' HUP TERM; while :; do sleep 1; done");
    pool.ok(&["sync"]);
    pool.ctl(&["--timeout", "1s", "kill", &killed]).expect(6);
    send_signal(pool.tmux_pid().unwrap(), Signal::SIGKILL);
    for session in [&id, &killed] {
        pool.await_lifecycle(session, "draining");
    }
    let is_quiet = |state: &str| {
        let status = pool.status();
        assert_eq!((&status["tmux"]["state"], &status["tmux"]["detail"]), (&state.into(), &Value::Null));
        assert!(!status["problems"].to_string().contains("not proved dead"), "{status}");
    };
    wait_until("its end is known", PATIENCE, || pool.show(&id)["reason"] == "server_gone");
    is_quiet("absent");
    let other = pool.script("other", "exec cat");
    assert_eq!(pool.lifecycle(&other), "live");
    wait_until("the new server is seen", PATIENCE, || pool.status()["tmux"]["state"] != "absent");
    is_quiet("up");
    pool.await_lifecycle(&id, "lost");
    pool.await_lifecycle(&killed, "stopped");
}

#[test]
fn t03_a_new_server_with_the_same_ids_is_not_taken_for_the_dead_one() {
    let pool = Pool::bare("[reaper]\ngrace = '500ms'\n");
    pool.start(Program::Poold);
    pool.start(Program::Reaper);
    pool.await_poold();
    // No watcher yet: its hidden session could take the first ids.
    let id = pool.script("web", "trap '' HUP; while :; do sleep 1; done");
    pool.start(Program::Watch);
    pool.await_complete();
    pool.ok(&["sync"]);
    let pane = pool.show(&id)["tmux"]["pane_id"].clone();
    assert_eq!(pane, "%0");
    let server = pool.tmux_pid().unwrap();
    pool.kill9(Program::Watch);
    send_signal(server, Signal::SIGKILL);
    wait_until("the server is gone", PATIENCE, || gone(server));
    let theirs = stranger(&pool);
    // The record still says live, unless the last observation is so old that an action observes first, or its init has
    // told.
    for args in [&["keys", &id, "x"][..], &["capture", &id]] {
        let output = pool.ctl(args);
        let says = ["another tmux server", "does not run", "is being ended"]
            .iter()
            .any(|why| output.stderr.contains(why));
        assert!(output.code != 0 && says, "{output:?}");
    }
    let message = pool.ok(&["send", &id, "text"]);
    pool.start(Program::Watch);
    pool.await_lifecycle(&id, "lost");
    assert_eq!(pool.json(&["queue", "show", &id, &message])["state"], "queued");
    pool.ctl(&["keys", &id, "x"]).expect(5);
    drop(pool.ctl(&["kill", &id]));
    pool.ok(&["rm", "--force", &id]);
    pool.ok(&["sync"]);
    assert!(alive(theirs) && lines_of(&pool, CANARY).is_empty(), "nothing of it reached the stranger");
    assert_eq!(pool.json(&["status"])["foreign"], serde_json::json!(["web"]));
}

#[test]
fn t03_a_new_server_beside_the_old_one_is_not_taken_for_it() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let doomed = pool.script("doomed", "exec cat");
    pool.ok(&["sync"]);
    let (doomed_agent, _) = pool.pane_pids(&doomed);
    let aside = pool.path("aside.sock");
    let _server = OutOfReach(pool.tmux_pid().unwrap());
    // No watcher meanwhile: its hidden session could take the first ids.
    let watcher = Stopped::new(pool.pid(Program::Watch).unwrap());
    fs::rename(pool.tmux_socket(), &aside).unwrap();
    let theirs = stranger(&pool);
    drop(watcher);
    await_fault(&pool, "another tmux server");
    let sent = pool.ok(&["send", &id, "text"]);
    for args in [&["keys", &id, "x"][..], &["capture", &id]] {
        let output = pool.ctl(args);
        assert!(output.code != 0 && output.stderr.contains("another tmux server"), "{output:?}");
    }
    let late = pool.ctl(&["new", "late", "--", "cat"]).expect(7);
    assert!(late.stderr.contains("another tmux server"), "what is started there is lost with it: {late:?}");
    pool.ctl(&["show", "late"]).expect(3);
    let refused = pool.ctl(&["restart", &id]).expect(7);
    assert!(refused.stderr.contains("another tmux server") && refused.stderr.contains("nothing was ended"));
    let killed = pool.ctl(&["--timeout", "30s", "kill", &doomed]);
    assert!([1, 6].contains(&killed.code), "nobody can say that its pane is gone: {killed:?}");
    assert!(gone(doomed_agent), "its processes are known by themselves");
    for _ in 0..2 {
        pool.ok(&["sync"]);
    }
    assert_eq!((pool.lifecycle(&id), pool.lifecycle(&doomed)), ("live".to_owned(), "draining".to_owned()));
    assert!(alive(theirs) && lines_of(&pool, CANARY).is_empty(), "nothing of it reached the stranger");
    assert_eq!(pool.json(&["queue", "show", &id, &sent])["state"], "queued");
    pool.tmux_text(&["kill-server"]);
    wait_until("the stranger is gone", PATIENCE, || gone(theirs));
    fs::rename(&aside, pool.tmux_socket()).unwrap();
    pool.await_lifecycle(&doomed, "stopped");
    wait_until("the message arrives", PATIENCE, || {
        pool.json(&["queue", "show", &id, &sent])["state"] == "done"
    });
    await_health(&pool);
}
