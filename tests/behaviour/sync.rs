//! The record follows tmux, but only on proof.

use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Pool, Program, alive, gone, send_signal, wait_until};

/// The configuration of a pool that adopts every session that it finds in tmux.
const ADOPT_ALL: &str = "[tmux]\nadopt = 'all'\n";

#[test]
fn t13_external_kill_is_detected() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    let (agent, _) = pool.pane_pids(&id);
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    let shown = pool.await_lifecycle(&id, "stopped");
    wait_until("its program is gone", PATIENCE, || gone(agent));
    assert!(shown["generator"].is_null() && shown["status"].is_null(), "{shown}");
    assert!(pool.event_kinds(&id).contains(&"session_stopped".to_owned()));
    assert_eq!(pool.status()["slots"]["used"], 0);
    pool.ctl(&["send", &id, "late"]).expect(5);
}

#[test]
fn t13_externally_created_session_is_foreign_and_untouched() {
    let pool = Pool::new();
    pool.script("ours", "exec sleep 1000");
    pool.tmux_text(&["new-session", "-d", "-s", "claude-other-1", "exec sleep 1001"]);
    let pid: u32 =
        pool.tmux_text(&["display-message", "-p", "-t", "=claude-other-1:", "#{pane_pid}"]).parse().unwrap();
    wait_until("it is seen", PATIENCE, || pool.status()["foreign"][0] == "claude-other-1");
    let synced = pool.json(&["sync"]);
    assert_eq!((&synced["foreign"], &synced["sessions"]), (&1.into(), &2.into()), "{synced}");
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1, "it is no session of the pool");
    for verb in ["show", "kill", "rm", "restart", "capture"] {
        pool.ctl(&[verb, "claude-other-1"]).expect(3);
    }
    pool.ctl(&["send", "claude-other-1", "text"]).expect(3);
    assert_ne!(pool.ctl(&["new", "claude-other-1", "--", "sleep", "1000"]).code, 0, "its name is taken");
    for program in Program::ALL {
        pool.kill9(program);
    }
    pool.start_all();
    pool.ok(&["sync"]);
    pool.ok(&["kill", "ours"]);
    assert!(alive(pid));
    assert_eq!(pool.tmux_text(&["show-options", "-pqv", "-t", "=claude-other-1:", "@pool_id"]), "");
    assert_eq!(pool.tmux_sessions(), ["claude-other-1"]);
}

#[test]
fn t13_concurrent_operations_do_not_deadlock() {
    let pool = Pool::new();
    for name in ["a", "b", "c"] {
        pool.script(name, "exec cat");
    }
    let work = |n: usize| {
        let name = ["a", "b", "c"][n % 3];
        for round in 0..4 {
            let label = format!("worker{n}={round}");
            let text = format!("{n} {round}");
            let renamed = format!("r{n}-{round}");
            let other: &[&str] = match n % 6 {
                0 => &["send", name, &text],
                1 => &["keys", name, "x", "Enter"],
                2 => &["capture", name],
                3 => &["sync"],
                4 => &["rename", name, &renamed],
                _ => &["label", name, &label],
            };
            for args in [other, &["show", name], &["ls"]] {
                pool.ctl(args).expect(0);
            }
        }
    };
    thread::scope(|scope| {
        for n in 0..6 {
            scope.spawn(move || work(n));
        }
    });
    thread::scope(|scope| {
        for name in ["a", "b", "c", "a", "b", "c"] {
            let pool = &pool;
            scope.spawn(move || pool.ctl(&["kill", name]).expect(0));
        }
    });
    assert_eq!(pool.lines(&["ls"]).len(), 0);
}

#[test]
fn t03_an_operation_is_verified_by_its_own_result() {
    let pool = Pool::new();
    let id = pool.script("web", "exec cat");
    pool.kill9(Program::Watch);
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    // The pool has not been told; its view is outdated.
    let keys = pool.ctl(&["keys", &id, "x"]);
    assert!([1, 5].contains(&keys.code), "{keys:?}");
    pool.start(Program::Watch);
    pool.await_lifecycle(&id, "stopped");
}

#[test]
fn t08_kill_is_idempotent_and_a_miss_is_told() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    for _ in 0..2 {
        let killed = pool.json(&["kill", &id]);
        assert_eq!((&killed["lifecycle"], &killed["reason"]), (&"stopped".into(), &"killed".into()));
    }
    pool.ctl(&["kill", "nobody"]).expect(3);
}

#[test]
fn t09_no_server_is_an_answer_and_no_failure() {
    let pool = Pool::new();
    assert!(!pool.tmux_socket().exists());
    let status = pool.status();
    assert_eq!((&status["healthy"], &status["tmux"]["state"]), (&true.into(), &"absent".into()), "{status}");
    assert_eq!(pool.json(&["sync"])["sessions"], 0);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
}

#[test]
fn t14_only_the_exact_name_is_meant() {
    let pool = Pool::new();
    let near = pool.script("web2", "exec sleep 1000");
    for wanted in ["web", "we", "web*", "=web2", "web2:", "$0", "%0", "sess_", "WEB2", "sess_01"] {
        let missed = pool.ctl(&["kill", wanted]);
        assert_eq!(missed.code, 3, "{missed:?}");
    }
    assert!(pool.ctl(&["show", "web"]).expect(3).stderr.contains("web2"), "the nearest is named");
    assert_eq!(pool.lifecycle(&near), "live");
    let exact = pool.script("web", "exec sleep 1000");
    pool.ok(&["kill", "web"]);
    assert_eq!((pool.lifecycle(&near).as_str(), pool.lifecycle(&exact).as_str()), ("live", "stopped"));
}

#[test]
fn t28_stopping_the_daemons_ends_no_session() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    let before = pool.pane_pids(&id);
    for program in [Program::Reaper, Program::Watch, Program::Poold] {
        pool.end(program, Signal::SIGTERM);
    }
    pool.ctl(&["ls"]).expect(7);
    assert!(alive(before.0) && alive(before.1));
    pool.start_all();
    assert_eq!((pool.lifecycle(&id).as_str(), pool.pane_pids(&id)), ("live", before));
}

#[test]
fn w08_a_foreign_name_is_shown_as_it_is() {
    let pool = Pool::new();
    pool.script("ours", "exec sleep 1000");
    for name in [" padded ", "with space", "-dash", "#{pid}", "a\tb"] {
        let made = pool.tmux(&["new-session", "-d", "-s", name, "exec sleep 1001"]);
        assert!(made.code == 0 || name.contains('\t'), "3.8 alone refuses a tab: {made:?}");
    }
    let listed = pool.tmux_sessions();
    wait_until("all are seen", PATIENCE, || {
        let status = pool.status();
        let foreign = status["foreign"].as_array().unwrap();
        let as_tmux_says = |name: &Value| listed.iter().any(|listed| name == listed.as_str());
        foreign.len() + 1 == listed.len() && foreign.iter().all(as_tmux_says)
    });
    assert!(listed.len() > 4, "{listed:?}");
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1);
}

#[test]
fn w15_creating_while_discovering_makes_each_once() {
    let pool = Pool::with(ADOPT_ALL);
    thread::scope(|scope| {
        for n in 0..6 {
            let pool = &pool;
            scope.spawn(move || pool.script(&format!("s{n}"), "exec sleep 1000"));
        }
        for _ in 0..2 {
            scope.spawn(|| (0..10).for_each(|_| drop(pool.json(&["sync"]))));
        }
    });
    let listed = pool.lines(&["ls", "--all"]);
    assert_eq!(listed.len(), 6);
    let panes = pool.tmux_panes("#{@pool_id} #{session_name}");
    assert_eq!(panes.len(), 6, "{panes:?}");
    for session in &listed {
        let kinds = pool.event_kinds(session["id"].as_str().unwrap());
        let count = |kind: &str| kinds.iter().filter(|k| *k == kind).count();
        assert_eq!((count("session_created"), count("session_live")), (1, 1), "{kinds:?}");
    }
    let created = pool.lines(&["events", "--kind", "session_created"]);
    assert_eq!(created.len(), 6, "{}", pool.journal());
    for event in &created {
        assert_eq!((&event["reason"], &event["adopted"]), (&json!("api_create"), &json!(false)), "{event}");
    }
}

#[test]
fn w19_a_removed_session_is_not_found_again() {
    let pool = Pool::with(ADOPT_ALL);
    // The server lives on without the removed one.
    pool.script("kept", "exec sleep 1000");
    let id = pool.script("web", "trap '' TERM HUP; while :; do sleep 1; done");
    let (agent, _) = pool.pane_pids(&id);
    thread::scope(|scope| {
        scope.spawn(|| pool.ok(&["rm", "web"]));
        scope.spawn(|| (0..10).for_each(|_| drop(pool.json(&["sync"]))));
    });
    wait_until("its program is gone", PATIENCE, || gone(agent));
    pool.ok(&["sync"]);
    pool.ctl(&["show", &id]).expect(3);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1);
    let created = pool.lines(&["events", "--kind", "session_created"]);
    assert_eq!(created.len(), 2, "whatever it is called: {}", pool.journal());
    let events = pool.lines(&["events", "--session", &id, "--kind", "session_deleted"]);
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["tmux_alive"], false);
}

#[test]
fn w20_a_session_that_tmux_keeps_is_not_adopted_again() {
    let pool = Pool::with(ADOPT_ALL);
    let id = pool.script("web", "exec sleep 1000");
    let (agent, _) = pool.pane_pids(&id);
    pool.ok(&["rm", "--keep-tmux", "web"]);
    pool.ok(&["sync"]);
    pool.restart_poold();
    pool.await_complete();
    pool.ok(&["sync"]);
    assert!(alive(agent));
    pool.ctl(&["show", &id]).expect(3);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
    assert_eq!(pool.status()["foreign"], json!(["web"]));
    let deleted = &pool.lines(&["events", "--session", &id, "--kind", "session_deleted"])[0];
    assert_eq!((&deleted["mode"], &deleted["tmux_alive"]), (&"detach".into(), &true.into()));
    send_signal(agent, Signal::SIGKILL);
}

#[test]
fn w21_a_program_that_does_not_react_is_not_forgotten() {
    let pool = Pool::new();
    let id = pool.script("web", "exec sleep 1000");
    let (agent, init) = pool.pane_pids(&id);
    for pid in [agent, init] {
        send_signal(pid, Signal::SIGSTOP);
    }
    pool.ok(&["sync"]);
    pool.restart_poold();
    pool.await_complete();
    assert_eq!(pool.lifecycle(&id), "live");
    let killed = pool.ctl(&["--timeout", "40s", "kill", "--grace", "200ms", &id]).expect(0);
    drop(killed);
    wait_until("both are gone", PATIENCE, || gone(agent) && gone(init));
}
