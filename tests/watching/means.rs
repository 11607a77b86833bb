//! The three ways to learn of changes: each works, and status says which it is.

use super::support::{assert_exact, await_connection, await_event};
use crate::harness::{PATIENCE, Pool, wait_until};

fn works(word: &str) {
    let pool = Pool::with(&format!("[watch]\nconnection = {word:?}\n[reaper]\ngrace = \"500ms\"\n"));
    let id = pool.script("web", "exec sleep 1000");
    await_connection(&pool, word);
    pool.tmux_text(&["new-session", "-d", "-s", "theirs", "exec sleep 1001"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "theirs");
    pool.tmux_text(&["rename-session", "-t", "=web", "site"]);
    await_event(&pool, "session_renamed", |event| event["name"] == "site");
    pool.tmux_text(&["kill-session", "-t", "=theirs"]);
    await_event(&pool, "foreign_gone", |event| event["name"] == "theirs");
    // What no event of tmux tells.
    pool.tmux_text(&["split-window", "-d", "-t", "=site:", "exec sleep 1001"]);
    pool.tmux_text(&["resize-window", "-t", "=site:", "-x", "99", "-y", "44"]);
    assert_exact(&pool);
    pool.tmux_text(&["kill-session", "-t", "=site"]);
    await_event(&pool, "session_stopped", |event| event["session"] == id.as_str());
    let hidden = pool.tmux(&["list-sessions", "-F", "#{session_name}"]).stdout.contains("_pool");
    assert!(!(word == "listings" && hidden), "who only lists needs no session");
    assert_eq!(pool.status()["tmux"]["connection"], word);
}

#[test]
fn the_native_connection_works() {
    works("native");
}

#[test]
fn control_mode_works() {
    works("control");
}

#[test]
fn listings_alone_work() {
    works("listings");
}

#[test]
fn the_connection_is_nothing_while_nobody_watches() {
    let pool = Pool::bare("");
    pool.start(crate::harness::Program::Poold);
    pool.await_poold();
    pool.script("web", "exec cat");
    assert!(pool.status()["tmux"]["connection"].is_null());
    pool.start(crate::harness::Program::Watch);
    await_connection(&pool, "native");
    pool.kill9(crate::harness::Program::Watch);
    wait_until("it is not", PATIENCE, || pool.status()["tmux"]["connection"].is_null());
}
