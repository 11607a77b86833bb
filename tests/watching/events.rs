//! Changes in tmux are in the journal at once, by events: no full listing is taken here.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{NO_SWEEP, await_connection, await_end_of, await_event};
use crate::harness::{PATIENCE, Pool, Talk, gone, send_signal, wait_until};

/// A pool whose watcher is notified of changes, with a session.
#[track_caller]
fn told() -> (Pool, String) {
    let pool = Pool::with(NO_SWEEP);
    let id = pool.script("web", "exec sleep 1000");
    await_connection(&pool, "native");
    (pool, id)
}

#[test]
fn w13_an_external_kill_is_told_without_polling() {
    let (pool, id) = told();
    let (agent, _) = pool.pane_pids(&id);
    pool.tmux_text(&["kill-session", "-t", "=web"]);
    let first = await_end_of(&pool, &id);
    // The program's end may be known before its cause.
    assert!(first["reason"] == "tmux_gone" || first["reason"] == "exited", "{first}");
    let stopped = await_event(&pool, "session_stopped", |event| event["session"] == id.as_str());
    assert_eq!(stopped["reason"], "tmux_gone", "{stopped}");
    assert!(gone(agent));
}

#[test]
fn w34_a_follower_of_one_session_hears_of_no_other() {
    let (pool, id) = told();
    let other = pool.script("other", "exec sleep 1000");
    let mut command = pool.poolctl();
    let follower = Talk::start(command.args(["--json", "events", "--follow", "--session", "web"]));
    let mut beat = 0;
    wait_until("the change after another session's is heard", PATIENCE, || {
        // The value differs each time, because an unchanged label is no event.
        beat += 1;
        pool.ok(&["label", &other, &format!("beat={beat}")]);
        pool.ok(&["label", &id, &format!("beat={beat}")]);
        follower.lines().iter().any(|line| line.contains("session_labelled"))
    });
    let lines = follower.end();
    assert!(lines.iter().any(|line| line.contains(&id)), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains(&other)), "{lines:?}");
}

#[test]
fn w33_the_state_has_what_programs_do_and_what_else_is_in_tmux_and_nothing_that_is_over() {
    let (pool, _) = told();
    let busy = pool.script("busy", "while :; do echo line; sleep 0.1; done");
    pool.ok(&["run", "--rm", "over", "--", "true"]);
    pool.tmux_text(&["new-session", "-d", "-s", "theirs", "sleep 1000"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "theirs");
    wait_until("it is busy", PATIENCE, || pool.show(&busy)["activity"] == "busy");
    let mut command = pool.poolctl();
    let follower = Talk::start(command.args(["--json", "events", "--follow"]));
    let is_whole = || follower.lines().iter().any(|line| line.contains("\"synced\""));
    wait_until("the state is whole", PATIENCE, is_whole);
    let lines = follower.end();
    let events: Vec<Value> = lines.iter().map_while(|line| serde_json::from_str(line).ok()).collect();
    let state: Vec<&Value> = events.iter().take_while(|event| event["kind"] != "synced").collect();
    let has = |kind: &str, key: &str, value: &str| {
        state.iter().any(|event| event["kind"] == kind && event[key] == value)
    };
    assert!(has("activity_changed", "session", &busy) && has("foreign_seen", "name", "theirs"), "{state:#?}");
    assert!(state.iter().all(|event| event["kind"] != "generator_ended"), "{state:#?}");
}

#[test]
fn w05_an_external_rename_is_followed_where_it_is_a_name() {
    let (pool, id) = told();
    let workspace = pool.show(&id)["workspace"].clone();
    pool.tmux_text(&["rename-session", "-t", "=web", "site"]);
    let renamed = await_event(&pool, "session_renamed", |event| event["session"] == id.as_str());
    assert_eq!(renamed["name"], "site", "{renamed}");
    let shown = pool.show("site");
    assert_eq!(
        (&shown["id"], &shown["workspace"], &shown["lifecycle"]),
        (&id.into(), &workspace, &"live".into())
    );
    // A name that is not valid in a pool stays tmux's own. Events keep the order of the changes.
    let pane = shown["tmux"]["pane_id"].as_str().unwrap().to_owned();
    for (n, free) in ["No Name", "_hidden", "sess_9", "-x"].into_iter().enumerate() {
        pool.tmux_text(&["rename-session", "-t", &pane, "--", free]);
        let mark = format!("mark{n}");
        pool.tmux_text(&["new-session", "-d", "-s", &mark, "exec sleep 1001"]);
        await_event(&pool, "foreign_seen", |event| event["name"] == mark.as_str());
        assert_eq!(
            (&pool.show("site")["name"], &pool.show("site")["lifecycle"]),
            (&"site".into(), &"live".into())
        );
        let told = pool.show("site")["detail"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains(free) && told.contains("`poolctl rename site site`"), "{told}");
    }
    pool.ok(&["rename", "site", "site"]);
    wait_until("it has its own name again", PATIENCE, || {
        let names = pool.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
        pool.show("site")["detail"].is_null() && names.lines().any(|name| name == "site")
    });
    let renamed = pool.lines(&["events", "--kind", "session_renamed"]);
    assert_eq!(renamed.len(), 1, "{renamed:?}");
    pool.tmux_text(&["rename-session", "-t", &pane, "shop"]);
    await_event(&pool, "session_renamed", |event| event["name"] == "shop");
    pool.ctl(&["show", "site"]).expect(3);
    assert_eq!(pool.ok(&["capture", "shop"]), "");
}

#[test]
fn w05_a_name_that_another_session_has_is_not_taken_over() {
    let (pool, web) = told();
    let shop = pool.script("shop", "exec sleep 1000");
    pool.ok(&["kill", &shop]);
    pool.tmux_text(&["rename-session", "-t", "=web", "shop"]);
    pool.tmux_text(&["new-session", "-d", "-s", "mark", "exec sleep 1001"]);
    await_event(&pool, "foreign_seen", |event| event["name"] == "mark");
    assert_eq!((&pool.show(&web)["name"], &pool.show("shop")["id"]), (&"web".into(), &shop.as_str().into()));
    assert!(pool.show(&web)["detail"].as_str().unwrap_or_default().contains("shop"));
    let told = pool.ctl(&["restart", "shop"]).expect(4);
    assert!(told.stderr.contains("`poolctl rename web web`"), "{told:?}");
    pool.ok(&["rename", "web", "web"]);
    pool.ok(&["restart", "shop"]);
}

#[test]
fn w05_a_session_takes_no_name_from_where_its_pane_was_moved() {
    let pool = Pool::new();
    pool.script("first", "exec sleep 1000");
    let second = pool.script("second", "exec sleep 1000");
    let pane = pool.show(&second)["tmux"]["pane_id"].as_str().unwrap().to_owned();
    for end in ["restart", "rm"] {
        pool.tmux_text(&["join-pane", "-d", "-s", &pane, "-t", "=first:"]);
        pool.ok(&[end, "first"]);
        let mark = format!("after-{end}");
        pool.tmux_text(&["new-session", "-d", "-s", &mark, "exec sleep 1001"]);
        await_event(&pool, "foreign_seen", |event| event["name"] == mark.as_str());
        let shown = pool.show(&second);
        assert_eq!(
            (&shown["name"], &shown["lifecycle"]),
            (&"second".into(), &"live".into()),
            "{end}: {shown}"
        );
    }
    pool.ctl(&["rm", "first"]).expect(3);
    assert_eq!(pool.lines(&["events", "--kind", "session_renamed"]).len(), 0);
}

#[test]
fn what_could_not_start_again_for_its_name_is_not_restarted() {
    let pool = Pool::new();
    let (first, second) = (pool.script("first", "exec sleep 1000"), pool.script("second", "exec sleep 1000"));
    let pane = |id: &str| pool.show(id)["tmux"]["pane_id"].as_str().unwrap().to_owned();
    pool.tmux_text(&["swap-pane", "-d", "-s", &pane(&first), "-t", &pane(&second)]);
    wait_until("it is seen", PATIENCE, || !pool.show(&first)["detail"].is_null());
    let run = pool.show(&first)["incarnations"].clone();
    let told = pool.ctl(&["restart", "first"]).expect(4);
    assert!(told.stderr.contains("nothing was ended"), "{told:?}");
    assert_eq!((&pool.show(&first)["lifecycle"], &pool.show(&first)["incarnations"]), (&"live".into(), &run));
}

#[test]
fn w12_foreign_sessions_come_and_go_in_the_journal() {
    let (pool, _) = told();
    pool.tmux_text(&["new-session", "-d", "-s", "theirs", "exec sleep 1001"]);
    let seen = await_event(&pool, "foreign_seen", |event| event["name"] == "theirs");
    assert!(seen["session"].is_null() && seen["tmux"].as_str().unwrap().starts_with('$'), "{seen}");
    assert_eq!(pool.status()["foreign"], serde_json::json!(["theirs"]));
    pool.tmux_text(&["rename-session", "-t", "=theirs", "Their Own"]);
    let again = await_event(&pool, "foreign_seen", |event| event["name"] == "Their Own");
    assert_eq!(again["tmux"], seen["tmux"], "the same, under another name");
    pool.tmux_text(&["kill-session", "-t", "=Their Own"]);
    let gone = await_event(&pool, "foreign_gone", |event| event["tmux"] == seen["tmux"]);
    assert_eq!(gone["name"], "Their Own");
    assert_eq!(pool.status()["foreign"], serde_json::json!([]));
    assert_eq!(pool.lines(&["events", "--kind", "foreign_gone"]).len(), 1);
}

#[test]
fn w32_the_death_of_a_pane_process_is_told_with_its_signal() {
    let (pool, id) = told();
    let other = pool.script("other", "exec sleep 1000");
    // The program of one session is killed, and the init of the other, which is the process of its pane.
    let ((agent, _), (orphan, init)) = (pool.pane_pids(&id), pool.pane_pids(&other));
    send_signal(agent, Signal::SIGKILL);
    send_signal(init, Signal::SIGKILL);
    // The exit of the other program is unknown: its init, which would have reported it, was killed.
    for (session, signal) in [(&id, Value::from(9)), (&other, Value::Null)] {
        await_event(&pool, "session_stopped", |event| event["session"] == session.as_str());
        let shown = pool.show(session);
        assert_eq!((&shown["lifecycle"], &shown["exit"]["signal"]), (&"stopped".into(), &signal), "{shown}");
        assert!(shown["exit"]["code"].is_null(), "{shown}");
    }
    wait_until("nothing is left of either", PATIENCE, || gone(agent) && gone(orphan));
}

#[test]
fn w32_who_detaches_ends_nothing() {
    let (pool, id) = told();
    let mut attached = pool.command("tmux");
    attached.arg("-uN").arg("-C").arg("-S").arg(pool.tmux_socket()).args(["attach-session", "-t", "=web"]);
    let client = Talk::start(&mut attached);
    wait_until("it is attached", PATIENCE, || pool.show(&id)["attached_clients"] == 1);
    drop(client);
    wait_until("it is detached", PATIENCE, || pool.show(&id)["attached_clients"] == 0);
    assert_eq!(pool.lifecycle(&id), "live");
    let kinds = pool.event_kinds(&id);
    assert!(!kinds.iter().any(|kind| kind.contains("drain") || kind.contains("stop")), "{kinds:?}");
}

#[test]
fn g13_the_pane_of_the_pool_decides_and_no_other() {
    let (pool, id) = told();
    let (_, init) = pool.pane_pids(&id);
    let split =
        pool.tmux_text(&["split-window", "-d", "-t", "=web:", "-P", "-F", "#{pane_pid}", "exec sleep 1001"]);
    let split: u32 = split.parse().unwrap();
    pool.ok(&["sync"]);
    assert_eq!(pool.pane_pids(&id).1, init, "a pane that a user splits off is not the pool's");
    send_signal(split, Signal::SIGKILL);
    wait_until("the user's is gone", PATIENCE, || gone(split));
    pool.ok(&["sync"]);
    assert_eq!(pool.lifecycle(&id), "live");
    // The other way round: the pool's pane ends, and the user's stays as it is.
    let other =
        pool.tmux_text(&["split-window", "-d", "-t", "=web:", "-P", "-F", "#{pane_pid}", "exec sleep 1001"]);
    let other: u32 = other.parse().unwrap();
    send_signal(init, Signal::SIGKILL);
    pool.await_lifecycle(&id, "stopped");
    assert!(crate::harness::alive(other));
}
