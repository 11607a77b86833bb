//! The reaper or the watcher dies or is missing; programs refuse to end.

use std::fs;
use std::thread;

use super::support::lines_of;
use crate::harness::{
    PATIENCE, Pool, Program, alive, descendants, gone, is_stopped, send_signal, wait_until,
};
use nix::sys::signal::Signal;

/// A session that notes its start and ignores requests to end.
fn stubborn(pool: &Pool) -> String {
    format!("trap '' TERM HUP INT; echo run >>{}; while :; do sleep 1; done", pool.path("runs").display())
}

#[test]
fn p05_what_a_killed_reaper_had_leased_the_next_one_finishes() {
    // Longer than a busy machine may keep this test from looking.
    let pool = Pool::with("[reaper]\ngrace = '8s'\n");
    let id = pool.script("web", &stubborn(&pool));
    wait_until("it runs", PATIENCE, || lines_of(&pool, "runs").len() == 1);
    let (agent, init) = pool.pane_pids(&id);
    thread::scope(|scope| {
        let kill = scope.spawn(|| pool.ctl(&["--timeout", "60s", "kill", &id]));
        wait_until("it is leased", PATIENCE, || {
            pool.event_kinds(&id).iter().any(|kind| kind == "reap_started")
        });
        pool.kill9(Program::Reaper);
        assert!(alive(agent), "the grace is not over");
        assert_eq!(pool.lifecycle(&id), "draining");
        pool.start(Program::Reaper);
        assert_eq!(kill.join().unwrap().code, 0);
    });
    assert_eq!(pool.lifecycle(&id), "stopped");
    assert!(gone(agent) && gone(init));
    let starts = pool.event_kinds(&id).iter().filter(|kind| *kind == "reap_started").count();
    assert_eq!(starts, 2);
    assert_eq!(pool.tmux_panes("x").len(), 0, "and its pane was the last one");
}

#[test]
fn w19_without_a_reaper_kill_and_rm_say_that_nobody_verified_it() {
    let pool = Pool::with("[reaper]\ngrace = '300ms'\n");
    let id = pool.script("web", &stubborn(&pool));
    wait_until("it runs", PATIENCE, || lines_of(&pool, "runs").len() == 1);
    let (agent, _) = pool.pane_pids(&id);
    pool.kill9(Program::Reaper);
    wait_until("its absence is seen", PATIENCE, || pool.ctl(&["status"]).code == 1);
    let status = pool.ctl(&["status"]).expect(1);
    assert!(status.stdout.contains("reaper is not connected"), "{}", status.stdout);
    let killed = pool.ctl(&["--timeout", "40s", "kill", &id]).expect(1);
    assert!(killed.stderr.contains("no reaper"), "{}", killed.stderr);
    assert!(alive(agent), "it ignores that its pane is gone");
    assert_eq!(pool.lifecycle(&id), "draining", "and is not said to be over");
    let removed = pool.ctl(&["--timeout", "40s", "rm", "--force", &id]).expect(1);
    assert!(removed.stderr.contains("no reaper"), "{}", removed.stderr);
    assert!(alive(agent));
    assert_eq!(pool.lifecycle(&id), "draining", "and its record is kept");
    pool.start(Program::Reaper);
    pool.await_lifecycle(&id, "stopped");
    assert!(gone(agent));
    pool.ok(&["kill", &id]);
    pool.ok(&["rm", &id]);
    pool.ctl(&["show", &id]).expect(3);
}

#[test]
fn c09_what_is_sent_while_a_session_is_removed_is_refused_or_gone_with_it_and_nothing_comes_after() {
    let pool = Pool::with("[reaper]\ngrace = '2s'\n");
    let id = pool.script("web", "trap '' TERM HUP; touch here; while :; do sleep 0.05; done");
    pool.await_file(pool.state().join("sessions").join(&id).join("work/here"), |_| true);
    let (agent, init) = pool.pane_pids(&id);
    thread::scope(|scope| {
        let removal = scope.spawn(|| pool.ctl(&["--timeout", "60s", "rm", "--force", "--purge", &id]));
        wait_until("it is being ended", PATIENCE, || pool.lifecycle(&id) == "draining");
        for kind in [&["--kind", "job"][..], &[]] {
            let sent = pool.ctl(&[&["send", &id, "text"], kind].concat()).expect(5);
            assert!(sent.stderr.contains("poolctl"), "it says what to do: {}", sent.stderr);
        }
        removal.join().unwrap().expect(0);
    });
    assert!(gone(agent) && gone(init), "removed only once its end was proved");
    for kind in [&["--kind", "job"][..], &[]] {
        pool.ctl(&[&["send", &id, "text"], kind].concat()).expect(3);
    }
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
    let events = pool.event_kinds(&id);
    assert_eq!(events.iter().filter(|kind| kind.starts_with("message_")).count(), 0, "{events:?}");
}

#[test]
fn without_a_watcher_status_is_a_failure_and_says_why() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.kill9(Program::Watch);
    wait_until("its absence is seen", PATIENCE, || pool.ctl(&["status"]).code == 1);
    let status = pool.ctl(&["status"]).expect(1);
    assert!(status.stdout.contains("tmux-watch is not connected"), "{}", status.stdout);
    assert_eq!(pool.lifecycle(&id), "live");
    pool.ok(&["send", &id, "--wait", "done", "text"]);
    pool.start(Program::Watch);
    pool.await_complete();
}

#[test]
fn an_end_that_takes_longer_than_rm_waits_is_told_to_be_no_removal() {
    let pool = Pool::with("[reaper]\ngrace = '100ms'\nverify = '100ms'\n");
    let id = pool.script("web", "exec sleep 1000");
    let reaper = pool.pid(Program::Reaper).unwrap();
    send_signal(reaper, Signal::SIGSTOP);
    let told = pool.ctl(&["--timeout", "60s", "rm", "web"]).expect(6);
    send_signal(reaper, Signal::SIGCONT);
    assert!(told.stderr.contains("repeat `poolctl rm "), "{}", told.stderr);
    pool.await_lifecycle(&id, "stopped");
    pool.ok(&["rm", "web"]);
}

#[test]
fn p04_what_does_not_want_to_end_ends() {
    let pool = Pool::new();
    let stopped = pool.script("stopped", "sleep 1000 & wait");
    let forking =
        pool.script("forking", "trap '' TERM HUP; while :; do (sleep 0.2 & sleep 0.2 &) ; sleep 0.1; done");
    let ignoring = pool.script("ignoring", &stubborn(&pool));
    wait_until("it runs", PATIENCE, || lines_of(&pool, "runs").len() == 1);
    let all = [&stopped, &forking, &ignoring].map(|id| pool.pane_pids(id));
    send_signal(all[0].0, Signal::SIGSTOP);
    wait_until("it is stopped", PATIENCE, || !cfg!(target_os = "linux") || is_stopped(all[0].0));
    let below: Vec<u32> = all.iter().flat_map(|(_, init)| descendants(*init)).collect();
    thread::scope(|scope| {
        for id in [&stopped, &forking, &ignoring] {
            let pool = &pool;
            scope.spawn(move || pool.ctl(&["--timeout", "60s", "kill", "--grace", "200ms", id]).expect(0));
        }
    });
    for id in [&stopped, &forking, &ignoring] {
        assert_eq!(pool.lifecycle(id), "stopped");
    }
    assert!(below.iter().chain(all.iter().flat_map(|(agent, init)| [agent, init])).all(|pid| gone(*pid)));
    assert_eq!(pool.marked(), Vec::new());
}

#[test]
fn p06_panes_of_others_are_never_touched() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    let dead = "set-option -w remain-on-exit on";
    let new = ["new-session", "-d", "-s", "foreign", "-P", "-F", "#{pane_pid}", "exec sleep 1000"];
    let foreign: u32 = pool.tmux_text(&new).parse().unwrap();
    pool.tmux_text(&["new-session", "-d", "-s", "ended", "read line"]);
    let words: Vec<&str> = dead.split(' ').collect();
    pool.tmux_text(&[&words[..1], &["-t", "=ended:"], &words[1..]].concat());
    pool.tmux_text(&["send-keys", "-t", "=ended:", "Enter"]);
    wait_until("it is dead", PATIENCE, || {
        pool.tmux_text(&["display-message", "-p", "-t", "=ended:", "#{pane_dead}"]) == "1"
    });
    // A tag that the pool never issued is not the pool's.
    pool.tmux_text(&["new-session", "-d", "-s", "forged", "exec sleep 1000"]);
    pool.tmux_text(&["set-option", "-p", "-t", "=forged:", "@pool_id", "00112233445566778899aabbccddeeff"]);
    pool.ok(&["sync"]);
    pool.ok(&["kill", &id]);
    pool.ok(&["rm", &id]);
    pool.ok(&["sync"]);
    assert_eq!(pool.tmux_sessions(), ["ended", "foreign", "forged"]);
    assert!(alive(foreign));
    let status = pool.json(&["status"]);
    let mut named: Vec<&str> =
        status["foreign"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    named.sort_unstable();
    assert_eq!(named, ["ended", "foreign", "forged"]);
    assert!(!fs::read_to_string(pool.path("reaper.log")).unwrap().contains("foreign"));
}
