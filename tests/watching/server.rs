//! The state of the tmux server: stopped, unreachable, forbidden, dead and replaced are different answers,
//! each with its remedy, and none proves more than it says.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::support::{NO_SWEEP, Theirs, assert_exact, await_connection, await_end_of, await_event, watch};
use crate::harness::{PATIENCE, Pool, Program, alive, children, gone, send_signal, wait_until};

/// Waits until `status` reports the server in this state; returns the status.
#[track_caller]
fn await_state(pool: &Pool, state: &str) -> Value {
    let mut last = Value::Null;
    crate::harness::eventually(&format!("the server is {state}"), PATIENCE, || {
        last = pool.status();
        (last["tmux"]["state"] == state).then(|| last.clone())
    })
}

/// Asserts that no unproved end is reported for any session.
#[track_caller]
fn assert_nothing_ended(pool: &Pool, ids: &[&String]) {
    for id in ids {
        assert_eq!(pool.lifecycle(id), "live");
        let kinds = pool.event_kinds(id);
        let ends = ["session_draining", "session_stopped", "session_lost", "session_deleted"];
        assert!(!kinds.iter().any(|kind| ends.contains(&kind.as_str())), "{kinds:?}");
    }
}

#[test]
fn t01_a_stopped_server_is_named_with_its_cure_and_loses_nothing() {
    let pool = Pool::with(NO_SWEEP);
    let ids = [pool.script("a", "exec cat"), pool.script("b", "exec cat")];
    await_connection(&pool, "native");
    assert_ne!(pool.status()["room"]["without"], "no tmux server runs yet");
    let (server, before) = (pool.tmux_pid().unwrap(), ids.each_ref().map(|id| pool.pane_pids(id)));
    let told = watch(&pool);
    send_signal(server, Signal::SIGSTOP);
    let early = pool.ctl(&["--timeout", "30s", "restart", "a"]).expect(7).stderr;
    assert!(early.contains("nothing was ended"), "no observation shows the trouble yet: {early}");
    let status = await_state(&pool, "stopped");
    assert_eq!(
        (&status["healthy"], &status["tmux"]["server_pid"]),
        (&false.into(), &server.into()),
        "{status}"
    );
    let cure = format!("kill -CONT {server}");
    assert!(status["tmux"]["detail"].as_str().unwrap().contains(&cure), "{status}");
    assert!(status["problems"].to_string().contains(&cure), "{status}");
    assert!(pool.ctl(&["status"]).expect(1).stdout.contains("stopped"));
    let unseen = pool.ctl(&["--json", "--timeout", "30s", "sync"]).expect(7);
    assert_eq!(unseen.error()["code"], "unavailable", "a typed error, whatever the text");
    let unread = pool.ctl(&["--timeout", "30s", "capture", "a"]).expect(7).stderr;
    assert!(unread.contains("its screen was not read") && !unread.contains("done"), "{unread}");
    let refused = pool.ctl(&["--timeout", "30s", "restart", "a"]).expect(7).stderr;
    assert!(refused.contains(&cure) && refused.contains("nothing was ended"), "{refused}");
    assert_nothing_ended(&pool, &ids.each_ref());
    // No helper process is left waiting for an answer.
    for program in Program::ALL {
        wait_until("its helpers are gone", PATIENCE, || children(pool.pid(program).unwrap()).is_empty());
    }
    send_signal(server, Signal::SIGCONT);
    await_state(&pool, "up");
    pool.await_complete();
    assert_eq!(ids.each_ref().map(|id| pool.pane_pids(id)), before);
    assert_nothing_ended(&pool, &ids.each_ref());
    assert_exact(&pool);
    pool.tmux_text(&["kill-session", "-t", "=a"]);
    await_end_of(&pool, &ids[0]);
    wait_until("a subscriber is told", PATIENCE, || {
        told.lines().iter().any(|line| line.contains("\"stopped\""))
    });
}

#[test]
fn t02_a_killed_server_is_proof_enough_at_once() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let (agent, server) = (pool.pane_pids(&id).0, pool.tmux_pid().unwrap());
    send_signal(server, Signal::SIGKILL);
    let lost = await_event(&pool, "session_lost", |event| event["session"] == id.as_str());
    assert_eq!(lost["reason"], "server_gone", "{lost}");
    wait_until("its program is gone", PATIENCE, || gone(agent));
    await_state(&pool, "absent");
    pool.await_complete();
    pool.ok(&["restart", &id]);
    await_connection(&pool, "native");
    assert_eq!(pool.lifecycle(&id), "live");
    assert_exact(&pool);
}

#[test]
fn what_was_lost_with_the_server_is_told_once_with_what_brings_it_back() {
    let pool = Pool::with(NO_SWEEP);
    let ids = ["a", "b", "c"].map(|name| pool.script(name, "exec cat"));
    await_connection(&pool, "native");
    assert!(pool.ctl(&["status"]).expect(0).stdout.contains("healthy"));
    send_signal(pool.tmux_pid().unwrap(), Signal::SIGKILL);
    ids.iter().for_each(|id| drop(pool.await_lifecycle(id, "lost")));
    let status = pool.ctl(&["status"]).expect(1).stdout;
    let says = ["3 sessions were lost", "a, b, c", "`poolctl restore --all`"];
    assert!(says.iter().all(|part| status.contains(part)), "{status}");
    let items = pool.lines(&["inbox"]);
    let [item] = &items[..] else { panic!("{items:?}") };
    assert_eq!((&item["kind"], &item["next"]), (&json!("lost"), &json!("poolctl restore --all")), "{item}");
    pool.ok(&["restore", "--all"]);
    pool.await_complete();
    pool.ctl(&["status"]).expect(0);
    assert!(pool.lines(&["inbox"]).is_empty());
}

#[test]
fn t03_a_replaced_server_with_sessions_named_alike_takes_nothing_over() {
    for ending in [Signal::SIGKILL, Signal::SIGTERM] {
        let pool = Pool::with(NO_SWEEP);
        let ids = [pool.script("first", "exec cat"), pool.script("second", "exec cat")];
        await_connection(&pool, "native");
        let panes = ["first", "second"].map(|name| pool.show(name)["tmux"]["pane_id"].clone());
        let server = pool.tmux_pid().unwrap();
        send_signal(server, ending);
        wait_until("the server is gone", PATIENCE, || gone(server));
        // The user's server starts at once, with the same names and, since ids start from 0, the same ids.
        let theirs = Theirs::start(&pool, &pool.tmux_socket(), "");
        let of = |name: &str| theirs.text(&["display-message", "-p", "-t", name, "#{pane_id}"]);
        theirs.text(&["new-session", "-d", "-s", "second", "exec cat"]);
        // The watcher's hidden session may have come before theirs.
        let again = ["=first:", "=second:"].map(of);
        assert!(again.iter().any(|id| panes.contains(&json!(id))), "ids are used again: {again:?} {panes:?}");
        for id in &ids {
            let shown = pool.await_lifecycle(id, "lost");
            assert_eq!(shown["reason"], "server_gone", "{shown}");
        }
        await_connection(&pool, "native");
        assert_exact(&pool);
        for (id, name) in ids.iter().zip(["first", "second"]) {
            assert_eq!(pool.lifecycle(id), "lost");
            pool.ctl(&["keys", id, "x"]).expect(5);
            pool.ctl(&["kill", id]).expect(0);
            let pane = format!("={name}:");
            assert_eq!(theirs.text(&["capture-pane", "-p", "-t", &pane]).trim(), "", "nothing reached it");
            assert_eq!(theirs.text(&["show-options", "-pqv", "-t", &pane, "@pool_id"]), "");
        }
        let status = pool.status();
        assert_eq!(status["foreign"], json!(["first", "second"]), "{status}");
        assert!(alive(theirs.pid()));
    }
}

#[test]
fn t06_a_deleted_socket_is_told_as_unreachable_and_mended() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let (server, before) = (pool.tmux_pid().unwrap(), pool.pane_pids(&id));
    let told = watch(&pool);
    wait_until("the subscriber has the state", PATIENCE, || !told.lines().is_empty());
    fs::remove_file(pool.tmux_socket()).unwrap();
    // `sync` tells the truth, whether the socket is back by then or not.
    let synced = pool.ctl(&["--timeout", "30s", "sync"]);
    assert!([0, 7].contains(&synced.code), "{synced:?}");
    wait_until("the server listens again", PATIENCE, || pool.tmux_pid() == Some(server));
    await_state(&pool, "up");
    pool.await_complete();
    wait_until("the subscriber is told", PATIENCE, || {
        told.lines().iter().any(|line| line.contains("\"unreachable\""))
    });
    assert_eq!(pool.pane_pids(&id), before);
    assert_nothing_ended(&pool, &[&id]);
    pool.tmux_text(&["new-session", "-d", "-s", "mark", "exec cat"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "mark");
}

#[test]
fn t01_a_socket_that_may_not_be_opened_is_forbidden_and_proves_nothing() {
    // Root may open everything, so this pool runs without privileges.
    let pool = Pool::bare_without_rights(NO_SWEEP);
    pool.start_all();
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let before = pool.pane_pids(&id);
    let mode = |mode| fs::set_permissions(pool.tmux_socket(), fs::Permissions::from_mode(mode)).unwrap();
    mode(0o000);
    // Existing connections survive; a new watcher is refused.
    pool.kill9(Program::Watch);
    pool.start(Program::Watch);
    let status = await_state(&pool, "forbidden");
    let socket = pool.tmux_socket().display().to_string();
    let detail = status["tmux"]["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("chmod") && detail.contains(&socket), "{status}");
    assert_nothing_ended(&pool, &[&id]);
    pool.ctl(&["--timeout", "20s", "keys", &id, "x"]).expect(7);
    mode(0o700);
    await_state(&pool, "up");
    pool.await_complete();
    assert_eq!(pool.pane_pids(&id), before);
    assert_nothing_ended(&pool, &[&id]);
    pool.ok(&["keys", &id, "x"]);
}

#[test]
fn t01_a_server_without_an_answer_in_time_is_unknown_to_who_only_lists() {
    let pool = Pool::with("[watch]\nconnection = \"listings\"\n[reaper]\ngrace = \"500ms\"\n");
    let id = pool.script("web", "exec cat");
    let server = pool.tmux_pid().unwrap();
    await_connection(&pool, "listings");
    send_signal(server, Signal::SIGSTOP);
    await_state(&pool, "stopped");
    assert_nothing_ended(&pool, &[&id]);
    send_signal(server, Signal::SIGCONT);
    await_state(&pool, "up");
    assert_nothing_ended(&pool, &[&id]);
}

#[test]
fn t01_a_missing_tmux_is_named() {
    let pool = Pool::bare("[tmux]\nbinary = \"/nowhere/tmux\"\n");
    for program in Program::ALL {
        pool.start(program);
    }
    pool.await_poold();
    let new = pool.ctl(&["new", "web", "--", "cat"]);
    assert_eq!(new.code, 7, "{new:?}");
    assert!(new.stderr.contains("/nowhere/tmux"), "{}", new.stderr);
}

#[test]
fn t01_up_names_a_missing_tmux() {
    let pool = Pool::bare("[tmux]\nbinary = \"/nowhere/tmux\"\n");
    let up = pool.ctl(&["up"]).expect(0);
    assert!(up.stdout.contains(" is up: "), "{up:?}");
    assert!(up.stderr.contains("poolctl: problem: the program tmux is not there (/nowhere/tmux)"), "{up:?}");
    pool.ok(&["down"]);
}

#[test]
fn t08_a_stopped_server_keeps_nobody_waiting_who_needs_no_answer_of_it() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let server = pool.tmux_pid().unwrap();
    send_signal(server, Signal::SIGSTOP);
    // The timeout is the test: a verb that asked tmux would need five seconds.
    for _ in 0..20 {
        for args in [&["ls"][..], &["show", &id], &["status"], &["events"], &["queue", "ls", &id]] {
            let ask = || pool.ctl(&[&["--timeout", "4s"], args].concat());
            // A single timeout may be due to a busy machine. A verb that asked tmux would time out both times.
            let answer = Some(ask()).filter(|answer| answer.code != 6).unwrap_or_else(ask);
            assert!([0, 1].contains(&answer.code), "{answer:?}");
        }
    }
    pool.ok(&["--timeout", "4s", "label", &id, "k=v"]);
    pool.ok(&["--timeout", "4s", "send", &id, "kept"]);
    let capped = pool.ctl(&["--timeout", "30s", "capture", &id]);
    assert_eq!(capped.code, 7, "{capped:?}");
    send_signal(server, Signal::SIGCONT);
    // The message may have been typed meanwhile, so it may be in doubt.
    await_state(&pool, "up");
    assert_nothing_ended(&pool, &[&id]);
}
