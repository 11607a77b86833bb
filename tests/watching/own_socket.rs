//! A pool in the user's own tmux server: nothing of the user's is changed, nothing is left behind.

use serde_json::json;

use super::support::{NO_SWEEP, Theirs, await_connection, await_end_of, await_event, seen, watch};
use crate::harness::{PATIENCE, Pool, Program, alive, gone, wait_until};

/// A pool configured to use a server at `user.sock`.
fn pointed_at_a_users(config: &str) -> Pool {
    let pool = Pool::bare("");
    let socket = pool.path("user.sock");
    pool.configure(&format!("{config}[tmux]\nsocket = \"{}\"\n", socket.display()));
    pool
}

#[test]
fn t07_a_pool_in_the_users_server_changes_nothing_of_the_users() {
    let pool = pointed_at_a_users(NO_SWEEP);
    let theirs = Theirs::start(&pool, &pool.path("user.sock"), "");
    theirs.text(&["new-session", "-d", "-s", "Their Own", "-x", "90", "-y", "30", "exec cat"]);
    theirs.text(&["split-window", "-d", "-t", "=Their Own:", "exec cat"]);
    let before = theirs.everything();
    pool.start_all();
    await_connection(&pool, "native");
    assert_eq!(pool.status()["tmux"]["server_pid"], theirs.pid());
    assert_eq!(pool.status()["foreign"], json!(["first", "Their Own"]));
    for program in Program::ALL {
        pool.kill9(program);
        pool.start(program);
    }
    pool.await_complete();
    pool.ok(&["sync"]);
    pool.ctl(&["kill", "first"]).expect(3);
    assert_eq!(theirs.everything(), before, "looking changes nothing, and nothing is made to look");
    // A session of the pool comes and goes among theirs.
    let id = pool.script("ours", "exec cat");
    let sessions = theirs.text(&["list-sessions", "-F", "#{session_name}"]);
    assert_eq!(sessions.lines().collect::<Vec<_>>(), ["Their Own", "first", "ours"]);
    pool.ok(&["send", &id, "--wait", "done", "hello"]);
    wait_until("it arrives", PATIENCE, || pool.ok(&["capture", &id]).contains("hello"));
    pool.ok(&["rm", "--force", &id]);
    wait_until("it is gone", PATIENCE, || theirs.tmux(&["has-session", "-t", "=ours"]).code == 1);
    assert_eq!(theirs.everything(), before);
    assert!(!pool.tmux_socket().exists(), "and there is no other server");
}

#[test]
fn w13_in_the_users_server_events_are_told_at_once_too() {
    let pool = pointed_at_a_users(NO_SWEEP);
    let theirs = Theirs::start(&pool, &pool.path("user.sock"), "");
    pool.start_all();
    await_connection(&pool, "native");
    let told = watch(&pool);
    let id = pool.script("ours", "exec cat");
    theirs.text(&["new-session", "-d", "-s", "theirs", "exec cat"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "theirs");
    theirs.text(&["rename-session", "-t", "=ours", "renamed"]);
    await_event(&pool, "session_renamed", |event| event["name"] == "renamed");
    theirs.text(&["kill-session", "-t", "=theirs"]);
    await_event(&pool, "foreign_gone", |event| event["name"] == "theirs");
    let agent = u32::try_from(pool.show(&id)["generator"]["pid"].as_u64().unwrap()).unwrap();
    theirs.text(&["kill-session", "-t", "=renamed"]);
    await_end_of(&pool, &id);
    pool.await_lifecycle(&id, "stopped");
    wait_until("its program is gone", PATIENCE, || gone(agent));
    assert!(!told.end().join("").contains("_pool"));
    assert!(!theirs.text(&["list-sessions", "-F", "#{session_name}"]).contains("_pool"));
}

#[test]
fn h34_in_the_users_server_sessions_are_adopted_and_given_back() {
    let pool = pointed_at_a_users(NO_SWEEP);
    let theirs = Theirs::start(&pool, &pool.path("user.sock"), "");
    pool.start_all();
    await_connection(&pool, "native");
    let id = pool.ok(&["adopt", "first"]);
    assert_eq!((pool.lifecycle(&id).as_str(), &pool.status()["foreign"]), ("live", &json!([])));
    pool.ok(&["send", &id, "--wait", "done", "hello"]);
    wait_until("it arrives", PATIENCE, || pool.ok(&["capture", "first"]).contains("hello"));
    pool.ok(&["rm", "--keep-tmux", "--force", &id]);
    wait_until("it is theirs again", PATIENCE, || pool.status()["foreign"] == json!(["first"]));
    assert!(alive(theirs.pid()));
    assert_eq!(seen(&pool).sessions.len(), 1);
}

#[test]
fn t07_the_end_of_the_pool_is_not_the_end_of_the_users_server() {
    let pool = pointed_at_a_users(NO_SWEEP);
    let theirs = Theirs::start(&pool, &pool.path("user.sock"), "");
    let pid: u32 = theirs.text(&["display-message", "-p", "-t", "=first:", "#{pane_pid}"]).parse().unwrap();
    pool.ok(&["--timeout", "30s", "up"]);
    pool.script("ours", "exec cat");
    pool.ok(&["--timeout", "30s", "down", "--stop-sessions"]);
    assert!(alive(theirs.pid()) && alive(pid));
    let sessions = theirs.text(&["list-sessions", "-F", "#{session_name}"]);
    assert_eq!(sessions, "first", "and only the pool's own was stopped");
    assert_eq!(theirs.text(&["list-clients"]), "");
}

#[test]
fn t07_control_mode_is_not_for_the_users_server() {
    let pool = pointed_at_a_users("[watch]\nconnection = \"control\"\n[reaper]\ngrace = \"500ms\"\n");
    let theirs = Theirs::start(&pool, &pool.path("user.sock"), "");
    pool.start_all();
    // Control mode would need a session of its own there, so the watcher falls back to listings.
    wait_until("it watches", PATIENCE, || !pool.status()["tmux"]["connection"].is_null());
    assert_ne!(pool.status()["tmux"]["connection"], "control");
    theirs.text(&["new-session", "-d", "-s", "theirs", "exec cat"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "theirs");
    assert_eq!(theirs.text(&["list-clients"]), "");
    assert_eq!(theirs.text(&["list-sessions", "-F", "#{session_name}"]), "first\ntheirs");
}

#[test]
fn what_was_lost_with_the_users_server_stays_lost_until_the_user_starts_it_again() {
    let pool = pointed_at_a_users(NO_SWEEP);
    let socket = pool.path("user.sock");
    let theirs = Theirs::start(&pool, &socket, "");
    pool.start_all();
    await_connection(&pool, "native");
    let ids = ["one", "two"].map(|name| pool.script(name, "exec sleep 1000"));
    theirs.tmux(&["kill-server"]);
    ids.iter().for_each(|id| drop(pool.await_lifecycle(id, "lost")));
    let remedy = format!("`tmux -S {} new-session -d`", socket.display());
    for restore in [&["restore", "--all"][..], &["restore", "one"]] {
        let refused = pool.ctl(restore).expect(7);
        assert!(refused.stderr.contains(&remedy), "{refused:?}");
    }
    let status = pool.ctl(&["status"]).expect(1).stdout;
    assert!(status.contains(&remedy), "{status}");
    for id in &ids {
        assert_eq!(pool.lifecycle(id), "lost", "nothing was tried");
    }
    let _theirs = Theirs::start(&pool, &socket, "");
    pool.ok(&["restore", "--all"]);
    ids.iter().for_each(|id| drop(pool.await_lifecycle(id, "live")));
}
