//! The three connections to tmux: each works, and status names the one in use.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::{assert_exact, await_connection, await_event};
use crate::harness::{PATIENCE, Pool, Program, wait_until};

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
    // Changes that tmux sends no event for.
    pool.tmux_text(&["split-window", "-d", "-t", "=site:", "exec sleep 1001"]);
    pool.tmux_text(&["resize-window", "-t", "=site:", "-x", "99", "-y", "44"]);
    assert_exact(&pool);
    pool.tmux_text(&["kill-session", "-t", "=site"]);
    await_event(&pool, "session_stopped", |event| event["session"] == id.as_str());
    let hidden = pool.tmux(&["list-sessions", "-F", "#{session_name}"]).stdout.contains("_pool");
    assert!(!(word == "listings" && hidden), "listings need no session");
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
    pool.start_poold();
    pool.script("web", "exec cat");
    assert!(pool.status()["tmux"]["connection"].is_null());
    pool.start(Program::Watch);
    await_connection(&pool, "native");
    pool.kill9(Program::Watch);
    wait_until("it is not", PATIENCE, || pool.status()["tmux"]["connection"].is_null());
}

/// A pool with a tmux of its own, which records its arguments; another one is first in PATH.
fn with_its_own_tmux() -> Pool {
    let pool = Pool::bare("");
    let program = |name: &str, script: &str| {
        let path = pool.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        path
    };
    let started = pool.path("started");
    let own = program("mine", &format!("echo \"$@\" >>{}\nexec tmux-of-all \"$@\"", started.display()));
    let real = String::from_utf8(pool.command("sh").args(["-c", "command -v tmux"]).output().unwrap().stdout);
    fs::create_dir(pool.path("first")).unwrap();
    std::os::unix::fs::symlink(real.unwrap().trim(), pool.path("first/tmux-of-all")).unwrap();
    program("first/tmux", &format!("touch {}; exit 1", pool.path("another").display()));
    pool.configure(&format!("[tmux]\nbinary = {own:?}\n[reaper]\ngrace = '500ms'\n"));
    let path = format!("{}:{}", pool.path("first").display(), std::env::var("PATH").unwrap());
    for name in Program::ALL {
        let mut daemon = pool.daemon(name);
        daemon.env("PATH", &path).env("TMUX", "/nowhere,1,0").env("TMUX_PANE", "%0");
        pool.start_as(name, daemon);
    }
    pool.await_complete();
    pool
}

#[test]
fn w39_which_tmux_runs_is_configured_for_each_pool_and_no_environment_decides_it() {
    let pools = [with_its_own_tmux(), with_its_own_tmux()];
    for pool in &pools {
        let id = pool.script("web", "exec cat");
        await_event(pool, "session_live", |event| event["session"] == id.as_str());
        pool.tmux_text(&["kill-session", "-t", "=web"]);
        await_event(pool, "session_stopped", |event| event["session"] == id.as_str());
    }
    for pool in &pools {
        let started = fs::read_to_string(pool.path("started")).unwrap();
        let own = pool.tmux_socket().display().to_string();
        assert!(
            started.lines().count() > 0 && started.lines().all(|line| line.contains(&own) || line == "-V"),
            "{started}"
        );
        assert!(!pool.path("another").exists(), "that of the search path was started");
    }
}
