//! The watcher's hidden session stays invisible to users.

use nix::sys::signal::Signal;
use serde_json::json;

use super::support::{NO_SWEEP, await_connection, await_event, seen, watch};
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, wait_until};

const NAME: &str = "_pool";

/// Number of sessions with that name, and the processes in them.
fn hidden(pool: &Pool) -> (usize, Vec<String>) {
    let sessions = pool.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
    let filter = format!("#{{==:#{{session_name}},{NAME}}}");
    let panes = pool.tmux_text(&["list-panes", "-a", "-f", &filter, "-F", "#{pane_pid} #{pane_dead}"]);
    (sessions.lines().filter(|name| *name == NAME).count(), panes.lines().map(str::to_owned).collect())
}

/// Sizes, layouts and attached clients of every session but the hidden one, as users see them.
fn appearance(pool: &Pool) -> String {
    let filter = format!("#{{!=:#{{session_name}},{NAME}}}");
    let format = "#{session_id} #{session_name} #{session_attached} #{window_id} #{window_width}x#{window_height} \
                  #{window_layout} #{pane_id} #{pane_width}x#{pane_height}";
    pool.tmux_text(&["list-panes", "-a", "-f", &filter, "-F", format])
}

#[test]
fn w22_the_hidden_session_is_nowhere_to_be_seen() {
    let pool = Pool::with(NO_SWEEP);
    // No watcher runs while the sizes are recorded.
    pool.end(Program::Watch, Signal::SIGTERM);
    pool.script("web", "exec cat");
    pool.tmux_text(&["new-session", "-d", "-s", "theirs", "-x", "77", "-y", "33", "exec cat"]);
    pool.tmux_text(&["split-window", "-d", "-t", "=theirs:", "exec cat"]);
    let before = appearance(&pool);
    let told = watch(&pool);
    pool.start(Program::Watch);
    await_connection(&pool, "native");
    // Its program ends at once; the server may learn of that a little later.
    wait_until("it is one, without a process", PATIENCE, || {
        let (sessions, panes) = hidden(&pool);
        sessions == 1 && panes.len() == 1 && panes[0].ends_with(" 1")
    });
    assert_eq!(appearance(&pool), before, "no size changes, and no client seems attached");
    assert!(!before.contains(" 1 @"), "{before}");
    let synced = pool.json(&["sync"]);
    let counts = ["sessions", "panes", "foreign"].map(|key| synced[key].as_u64().unwrap());
    assert_eq!(counts, [2, 3, 2], "{synced}");
    assert_eq!(pool.status()["foreign"], json!(["theirs"]));
    pool.tmux_text(&["new-session", "-d", "-s", "mark", "exec cat"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "mark");
    wait_until("the subscriber is told", PATIENCE, || {
        told.lines().iter().any(|line| line.contains("\"mark\""))
    });
    let everything = format!("{:?}{:?}{}", pool.events(), told.end(), pool.status());
    assert!(!everything.contains(NAME), "{everything}");
    assert_eq!(seen(&pool).sessions.len(), 3);
    pool.ctl(&["show", NAME]).expect(3);
    for session in [NAME, &format!("={NAME}")] {
        assert_ne!(pool.ctl(&["adopt", session]).code, 0);
    }
}

#[test]
fn w22_the_hidden_session_of_no_consequence_when_killed() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let watcher = pool.pid(Program::Watch);
    for round in 0..3 {
        pool.tmux_text(&["kill-session", "-t", &format!("={NAME}")]);
        wait_until("it is there again", PATIENCE, || hidden(&pool).0 == 1);
        let name = format!("mark{round}");
        pool.tmux_text(&["new-session", "-d", "-s", &name, "exec cat"]);
        await_event(&pool, "foreign_seen", |event| event["name"] == name.as_str());
        pool.tmux_text(&["kill-session", "-t", &format!("={name}")]);
        await_event(&pool, "foreign_gone", |event| event["name"] == name.as_str());
    }
    await_connection(&pool, "native");
    assert_eq!((pool.pid(Program::Watch), pool.ended(Program::Watch)), (watcher, None));
    assert_eq!(pool.lifecycle(&id), "live");
    let kinds = pool.event_kinds(&id);
    assert!(!kinds.iter().any(|kind| kind.contains("drain") || kind.contains("stop")), "{kinds:?}");
}

#[test]
fn w22_down_and_up_leave_one_hidden_session() {
    let pool = Pool::bare(NO_SWEEP);
    for round in 0..3 {
        pool.ok(&["--timeout", "30s", "up"]);
        if round == 0 {
            pool.script("web", "exec cat");
        }
        await_connection(&pool, "native");
        wait_until("there is one", PATIENCE, || hidden(&pool).0 == 1);
        let clients = pool.tmux_text(&["list-clients", "-F", "#{session_name}"]);
        assert!(clients.lines().count() <= 1, "{clients}");
        pool.ok(&["down"]);
        assert_eq!(hidden(&pool).0, 1, "the end of the pool leaves tmux alone");
    }
}

#[test]
fn a_pool_that_is_stopped_with_its_sessions_leaves_no_tmux_server() {
    let pool = Pool::bare(NO_SWEEP);
    pool.ok(&["--timeout", "30s", "up"]);
    pool.script("web", "exec cat");
    await_connection(&pool, "native");
    wait_until("there is a hidden session", PATIENCE, || hidden(&pool).0 == 1);
    pool.tmux_text(&["new-session", "-d", "-s", "own", "sleep 600"]);
    pool.ok(&["down", "--stop-sessions"]);
    let left = pool.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
    assert!(left.lines().any(|name| name == "own"), "foreign sessions are kept: {left}");
    pool.tmux_text(&["kill-session", "-t", "=own"]);
    pool.ok(&["--timeout", "30s", "up"]);
    pool.ok(&["down", "--stop-sessions"]);
    wait_until("no server is left", PATIENCE, || pool.tmux(&["list-sessions"]).code != 0);
}

#[test]
fn w22_a_server_that_ends_with_its_last_session_is_no_trouble() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    pool.ok(&["kill", &id]);
    // The hidden session does not keep the server from being reported idle or absent.
    let state = eventually("it is quiet", PATIENCE, || {
        let status = pool.status();
        (status["healthy"] == true).then(|| status["tmux"]["state"].as_str().unwrap().to_owned())
    });
    assert!(["up", "absent"].contains(&state.as_str()), "{state}");
    let again = pool.script("web2", "exec cat");
    assert_eq!(pool.lifecycle(&again), "live");
    let client = Talk::start(pool.poolctl().args(["watch"]));
    wait_until("it is shown", PATIENCE, || client.lines().iter().any(|line| line.contains("web2")));
}
