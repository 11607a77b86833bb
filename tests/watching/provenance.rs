//! How a session's record came about, how old its tmux session is, and how well its pane is observed.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::support::{NO_SWEEP, Theirs, await_connection, await_event};
use crate::harness::{Output, PATIENCE, Pool, Program, eventually, gone, send_signal, wait_until};

/// Creates a directory, and those above it, for this user alone.
fn private_dir(dir: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).unwrap();
}

/// Seconds since the epoch as they are written in documents.
fn written(pool: &Pool, seconds: &str) -> Value {
    let mut date = pool.command("date");
    let shown = Output::of(date.args(["-u", "-d", &format!("@{seconds}"), "+%Y-%m-%dT%H:%M:%S.000Z"]), b"");
    json!(shown.expect(0).text())
}

/// The creation of a session, as the journal tells it last.
fn creation(pool: &Pool, name: &str) -> Value {
    let events = pool.lines(&["events", "--kind", "session_created"]);
    let last = events.into_iter().rfind(|event| event["name"] == name);
    last.unwrap_or_else(|| panic!("{name} was not created: {}", pool.journal()))
}

/// The origin of a session: by the event, and by its document.
fn origin(pool: &Pool, name: &str) -> (Value, Value, Value) {
    let (event, shown) = (creation(pool, name), pool.show(name));
    assert_eq!((&event["reason"], &event["adopted"]), (&shown["origin"], &shown["adopted"]));
    let listed = pool.lines(&["ls", "--all"]).into_iter().find(|session| session["name"] == name).unwrap();
    (shown["origin"].clone(), shown["adopted"].clone(), listed["adopted"].clone())
}

#[test]
fn t05_an_adopted_session_is_as_old_and_as_active_as_its_tmux_session() {
    let pool = Pool::with(NO_SWEEP);
    let theirs = Theirs::start(&pool, &pool.tmux_socket(), "");
    await_event(&pool, "tmux_server_changed", |_| true);
    let read = |format: &str| theirs.text(&["display-message", "-p", "-t", "first", format]);
    let created = read("#{session_created}");
    // A client that attaches is an activity, told in whole seconds; tmux ignores one that leaves at once.
    wait_until("it is active after its creation", PATIENCE, || {
        theirs.text(&["-C", "attach-session", "-t", "=first"]);
        read("#{session_activity}") != created
    });
    let active = read("#{session_activity}");
    let shown = pool.json(&["adopt", "first"]);
    assert_eq!(
        (&shown["created_at"], &shown["last_activity_at"]),
        (&written(&pool, &created), &written(&pool, &active)),
        "{shown}"
    );
    assert_eq!(creation(&pool, "first")["created_at"], shown["created_at"]);
    // A message is an activity of its own, and the age stays.
    pool.ok(&["send", "first", "--wait", "done", "hello"]);
    let after = pool.show("first");
    assert_eq!(after["created_at"], shown["created_at"]);
    assert!(after["last_activity_at"].as_str() > shown["last_activity_at"].as_str(), "{after}");
    pool.restart_poold();
    assert_eq!(pool.show("first")["created_at"], shown["created_at"]);
}

#[test]
fn w12_w33_a_creation_says_how_it_came_about() {
    let pool = Pool::bare(&format!("[tmux]\nadopt = \"all\"\n{NO_SWEEP}"));
    let theirs = {
        private_dir(&pool.state().join("run"));
        Theirs::start(&pool, &pool.tmux_socket(), "")
    };
    // tmux tells whole seconds: the next one begins before the daemon does.
    let created: u64 =
        theirs.text(&["display-message", "-p", "-t", "first", "#{session_created}"]).parse().unwrap();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    wait_until("a second is over", PATIENCE, || now() > created);
    pool.start_all();
    wait_until("it is adopted", PATIENCE, || pool.ctl(&["show", "first"]).code == 0);
    wait_until("another second is over", PATIENCE, || now() > created + 3);
    theirs.text(&["new-session", "-d", "-s", "later", "exec cat"]);
    wait_until("it is adopted", PATIENCE, || pool.ctl(&["show", "later"]).code == 0);
    pool.script("made", "exec cat");
    let is = |reason: &str, adopted: bool| (json!(reason), json!(adopted), json!(adopted));
    assert_eq!(origin(&pool, "first"), is("startup_discovery", true));
    assert_eq!(origin(&pool, "later"), is("adopted", true));
    assert_eq!(origin(&pool, "made"), is("api_create", false));
    // What is restored or imported is another pool's, and says so.
    let (export, backup) = (pool.path("export"), pool.path("backup"));
    pool.ok(&["export", export.to_str().unwrap()]);
    pool.ok(&["backup", backup.to_str().unwrap()]);
    let imported = Pool::bare("");
    imported.ok(&["import", export.to_str().unwrap()]);
    let restored = Pool::bare("");
    private_dir(&restored.state());
    fs::copy(&backup, restored.database()).unwrap();
    for (other, reason) in [(&imported, "imported"), (&restored, "restored")] {
        other.start_poold();
        for name in ["first", "made"] {
            assert_eq!(origin(other, name), is(reason, false), "{name}");
        }
    }
}

#[test]
fn w13_what_disappeared_while_poold_was_down_is_told_with_its_reason() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec sleep 1000");
    let other = pool.script("other", "exec sleep 1000");
    let (agent, _) = pool.pane_pids(&id);
    pool.kill9(Program::Poold);
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    wait_until("it is gone", PATIENCE, || gone(agent));
    pool.start(Program::Poold);
    pool.await_complete();
    let stopped = await_event(&pool, "session_stopped", |event| event["session"] == id.as_str());
    assert_eq!(stopped["reason"], "startup_missing_tmux", "{}", pool.journal());
    assert_eq!(pool.show(&id)["reason"], "startup_missing_tmux");
    assert_eq!(pool.lifecycle(&other), "live");
}

#[test]
fn w38_how_a_pane_is_observed_is_told_with_the_last_trouble() {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec cat");
    await_connection(&pool, "native");
    let await_health = |state: &str| {
        eventually(&format!("its pane is {state}"), PATIENCE, || {
            let listed = pool.lines(&["ls", "--all"]).into_iter().find(|s| s["id"] == id.as_str()).unwrap();
            Some(listed["transport_health"].clone()).filter(|health| health["state"] == state)
        })
    };
    let health = await_health("observed");
    assert_eq!((&health["means"], &health["last_error"]), (&json!("native"), &Value::Null), "{health}");
    assert!(health["since"].is_string());
    pool.kill9(Program::Watch);
    let health = await_health("stale");
    assert_eq!((&health["means"], &health["last_error"]), (&Value::Null, &json!("tmux-watch disconnected")));
    pool.start(Program::Watch);
    let health = await_health("observed");
    assert_eq!(health["last_error"], "tmux-watch disconnected", "what it was is kept");
    // A watcher that is stopped.
    let watcher = pool.pid(Program::Watch).unwrap();
    send_signal(watcher, Signal::SIGSTOP);
    await_health("stale");
    send_signal(watcher, Signal::SIGCONT);
    await_health("observed");
    // A server that does not answer.
    let server = pool.tmux_pid().unwrap();
    pool.ok(&["label", &id, "k=v"]);
    let before = pool.lines(&["events"]).last().unwrap()["at"].clone();
    pool.ok(&["sync"]);
    send_signal(server, Signal::SIGSTOP);
    // The pane is stale since the last observation, and the reason is known a moment later.
    let health = eventually("why its pane is stale is told", PATIENCE, || {
        Some(await_health("stale"))
            .filter(|health| health["last_error_at"].as_str() >= health["since"].as_str())
    });
    let (list, one) = (pool.ctl(&["ls"]).expect(0), pool.ok(&["show", &id]));
    send_signal(server, Signal::SIGCONT);
    assert!(health["since"].as_str() >= before.as_str(), "the last look, not an earlier one: {health}");
    assert!(list.stderr.starts_with("not observed since"), "{list:?}");
    assert!(one.lines().any(|line| line.starts_with("observed") && line.contains("not since")), "{one}");
    await_health("observed");
    pool.ok(&["kill", &id]);
    await_health("unobserved");
}
