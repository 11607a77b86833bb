//! `poold` dies between any two steps of `new`, a delivery or a removal. The next instance finishes or undoes
//! what was begun, once, and reports as unknown what it cannot know.

use std::thread;

use serde_json::Value;

use super::support::{Stopped, crashing, lines_of, recorder};
use crate::harness::{Output, PATIENCE, Pool, Program, Talk, eventually, number, wait_until};

const STEPS: [&str; 4] = ["new-intent", "new-before-tmux", "new-after-tmux", "new-outcome"];
/// Rounds at each crash point; `POOL_CRASH_ROUNDS` sets more.
const ROUNDS: usize = 1;
/// Exit code of an abort.
const ABORTED: i32 = 134;

/// Runs `new` against a `poold` that dies at `point`, then starts another; returns the client's final output.
fn new_across_a_crash(pool: &Pool, point: &str, op: &str) -> Output {
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(pool, point));
    pool.await_poold();
    let script = recorder(pool);
    thread::scope(|scope| {
        let new = || repeat(pool, op, &script);
        let client = scope.spawn(new);
        assert_eq!(pool.await_end(Program::Poold), ABORTED, "{point}: {}", pool.logs());
        pool.kill9(Program::Poold);
        pool.start(Program::Poold);
        client.join().unwrap()
    })
}

fn repeat(pool: &Pool, op: &str, script: &str) -> Output {
    pool.ctl(&["--json", "--timeout", "40s", "new", op, "--op-id", op, "--", "sh", "-c", script])
}

#[test]
fn a_crash_after_a_rename_was_recorded_renames_no_other_session() {
    let pool = Pool::new();
    let id = pool.script("first", "true");
    pool.await_lifecycle(&id, "stopped");
    // A session is also found by its first name, for ever.
    pool.ok(&["rename", &id, "www"]);
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(&pool, "rename-recorded"));
    pool.await_poold();
    thread::scope(|scope| {
        let rename = || pool.ctl(&["--timeout", "40s", "rename", "www", "site"]);
        let client = scope.spawn(rename);
        assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
        pool.kill9(Program::Poold);
        pool.start(Program::Poold);
        client.join().unwrap().expect(0);
    });
    assert_eq!(pool.show(&id)["name"], "site");
}

#[test]
fn a_rename_that_a_crash_kept_from_tmux_is_made_by_its_repeat_if_that_tells_the_former_name() {
    thread::scope(|scope| {
        scope.spawn(|| repeats_rename(|_| "www".to_owned()));
        repeats_rename(str::to_owned);
    });
}

/// Renames a session, which the request names by its name or its id, with a crash before tmux is told.
fn repeats_rename(named: fn(&str) -> String) {
    let pool = Pool::new();
    let id = pool.script("www", "exec sleep 1000");
    let wanted = named(&id);
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(&pool, "rename-recorded"));
    pool.await_poold();
    let rename = ["--timeout", "2s", "rename", &wanted, "site", "--op-id", "r1"];
    assert_ne!(pool.ctl(&rename).code, 0);
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{}", pool.logs());
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    // tmux has the old name, which counts as one that a person gave.
    wait_until("the name is that of tmux", PATIENCE, || {
        let shown = pool.ctl(&["--json", "show", &id]);
        shown.code == 0 && shown.json()["name"] == "www"
    });
    if wanted == id {
        // A request that names the session by its id does not tell whether somebody else has renamed it since.
        let refused = pool.ctl(&rename).expect(4);
        assert!(refused.stderr.contains("a new operation id renames it"), "{}", refused.stderr);
        pool.ok(&["rename", &wanted, "site", "--op-id", "r2"]);
    } else {
        pool.ok(&rename);
    }
    assert_eq!(pool.show(&id)["name"], "site");
    let names = pool.tmux_text(&["list-sessions", "-F", "#{session_name}"]);
    assert!(names.lines().any(|name| name == "site"), "{names}");
}

/// Tags of all panes.
fn tags(pool: &Pool) -> Vec<String> {
    pool.tmux_panes("#{@pool_id}")
}

/// Tags of running programs.
fn running(pool: &Pool) -> Vec<String> {
    let mut tags: Vec<String> = pool.marked().into_iter().map(|(_, tag)| tag).collect();
    tags.sort();
    tags.dedup();
    tags
}

fn sessions(pool: &Pool) -> Vec<Value> {
    pool.lines(&["ls", "--all"])
}

#[test]
fn a_crash_at_any_step_of_new_leaves_one_session() {
    let each = |point: &&str| {
        let pool = Pool::with("[pool]\nmax_sessions = 64\n[reaper]\ngrace = '500ms'\n");
        for round in 0..number("POOL_CRASH_ROUNDS", ROUNDS) {
            let op = format!("op{round}");
            let told = new_across_a_crash(&pool, point, &op).expect(0).json();
            let again = repeat(&pool, &op, &recorder(&pool)).expect(0).json();
            assert_eq!(told["id"], again["id"], "{point}");
            assert_eq!(pool.lifecycle(&op), "live", "{point}");
            let live = round + 1;
            assert_eq!(sessions(&pool).len(), live, "{point}: {:?}", sessions(&pool));
            wait_until("each session has one pane, and no other is left", PATIENCE, || {
                let (mut panes, running) = (tags(&pool), running(&pool));
                panes.sort();
                panes.len() == live && panes == running
            });
            wait_until("it runs", PATIENCE, || lines_of(&pool, "runs").len() >= live);
            assert_eq!(lines_of(&pool, "runs").len(), live, "{point}: never twice");
        }
    };
    thread::scope(|scope| STEPS.iter().for_each(|point| drop(scope.spawn(move || each(point)))));
}

#[test]
fn a_crash_at_any_step_of_new_with_tmux_stopped_is_told_as_it_is() {
    let each = |point: &&str| {
        let pool = Pool::new();
        pool.script("holder", "exec sleep 1000");
        let stopped = Stopped::new(pool.tmux_pid().unwrap());
        let told = new_across_a_crash(&pool, point, "web");
        assert!([0, 1, 6, 7].contains(&told.code), "{point}: {told:?}");
        let state = pool.lifecycle("web");
        assert!(["failed", "starting"].contains(&state.as_str()), "{point}: {state} cannot be known");
        drop(stopped);
        let state = eventually("it is known", PATIENCE, || {
            Some(pool.lifecycle("web")).filter(|state| state != "starting")
        });
        let runs = if state == "live" { 1 } else { 0 };
        wait_until("there are the panes of what is live, and no other", PATIENCE, || {
            let (mut panes, running) = (tags(&pool), running(&pool));
            panes.sort();
            panes.len() == 1 + runs && panes == running
        });
        wait_until("what runs says so", PATIENCE, || lines_of(&pool, "runs").len() >= runs);
        assert_eq!(lines_of(&pool, "runs").len(), runs, "{point}: {state}");
        assert_eq!(sessions(&pool).len(), 2, "{point}");
        if state != "live" {
            assert_eq!(state, "failed", "{point}");
            pool.ok(&["restart", "web"]);
            wait_until("it runs", PATIENCE, || lines_of(&pool, "runs").len() == 1);
        }
    };
    thread::scope(|scope| STEPS.iter().for_each(|point| drop(scope.spawn(move || each(point)))));
}

/// A pool with a session that records its input.
fn reader() -> (Pool, String) {
    let pool = Pool::new();
    let id = pool.script("web", &recorder(&pool));
    wait_until("it reads", PATIENCE, || !lines_of(&pool, "runs").is_empty());
    (pool, id)
}

/// Sends a message to a `poold` that dies at `point` of its delivery; returns the message's id.
fn send_into_a_crash(pool: &Pool, point: &str, text: &str) -> String {
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(pool, point));
    pool.await_poold();
    let id = pool.ok(&["--timeout", "40s", "send", "web", text]);
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{point}: {}", pool.logs());
    pool.kill9(Program::Poold);
    id
}

/// [`send_into_a_crash`], then starts another `poold`.
fn send_across_a_crash(pool: &Pool, point: &str, text: &str) -> String {
    let id = send_into_a_crash(pool, point, text);
    pool.start_poold();
    id
}

fn state(pool: &Pool, message: &str) -> String {
    pool.json(&["queue", "show", "web", message])["state"].as_str().unwrap().to_owned()
}

fn times(pool: &Pool, text: &str) -> usize {
    lines_of(pool, "got").iter().filter(|line| *line == text).count()
}

#[test]
fn q06_whatever_the_moment_of_a_crash_a_message_is_typed_once_and_entered_once() {
    let (pool, _) = reader();
    for round in 0..number("POOL_CRASH_ROUNDS", ROUNDS) {
        for point in ["deliver-typing", "deliver-pasted", "deliver-typed"] {
            let text = format!("{point} {round}");
            let message = send_across_a_crash(&pool, point, &text);
            let next = format!("after {point} {round}");
            pool.ok(&["send", "web", "--wait", "done", &next]);
            assert_eq!(state(&pool, &message), "done", "{point}");
            wait_until("both arrive", PATIENCE, || times(&pool, &text) + times(&pool, &next) >= 2);
            assert_eq!((times(&pool, &text), times(&pool, &next)), (1, 1), "{point}");
        }
    }
}

#[test]
fn q06_enter_is_not_pressed_behind_a_text_where_somebody_was_at_the_terminal_since() {
    let (pool, _) = reader();
    let message = send_into_a_crash(&pool, "deliver-pasted", "text");
    // A person attaches, handles it, and detaches.
    let person = Talk::attached(&pool, "=web:");
    let clients = || pool.tmux_text(&["list-clients", "-t", "=web:", "-F", "#{client_pid}"]);
    wait_until("a client is attached", PATIENCE, || !clients().is_empty());
    drop(person);
    wait_until("no client is attached", PATIENCE, || clients().is_empty());
    for _ in 0..2 {
        pool.start_poold();
        wait_until("it is in doubt", PATIENCE, || state(&pool, &message) == "in_doubt");
        pool.kill9(Program::Poold);
    }
    pool.start_poold();
    assert_eq!((state(&pool, &message), times(&pool, "text")), ("in_doubt".to_owned(), 0));
    // It is not typed behind itself: this daemon did not see it typed, but it still stands there.
    pool.ok(&["queue", "resolve", "web", &message, "--as", "retry"]);
    wait_until("it waits", PATIENCE, || {
        let waits = pool.show("web")["waits"].clone();
        waits.as_str().is_some_and(|why| why.contains("somebody left an unfinished line in it"))
    });
    pool.ok(&["keys", "web", "C-u"]);
    wait_until("it arrived", PATIENCE, || times(&pool, "text") == 1);
}

#[test]
fn q06_a_moment_without_an_answer_of_tmux_is_no_doubt() {
    let (pool, _) = reader();
    let message = send_into_a_crash(&pool, "deliver-pasted", "text");
    let stopped = Stopped::new(pool.tmux_pid().unwrap());
    pool.start(Program::Poold);
    wait_until("it was asked, and did not answer", PATIENCE, || {
        pool.logs().contains("tmux does not answer whether a prompt was typed")
    });
    assert_eq!(state(&pool, &message), "typing");
    assert_eq!(pool.ctl(&["queue", "resolve", "web", &message, "--as", "retry"]).code, 4);
    drop(stopped);
    wait_until("it is typed", PATIENCE, || state(&pool, &message) == "done");
    wait_until("it arrived", PATIENCE, || times(&pool, "text") == 1);
}

#[test]
fn q06_what_may_have_been_typed_into_a_pane_that_is_over_is_in_doubt_until_somebody_says() {
    let (pool, _) = reader();
    let message = send_into_a_crash(&pool, "deliver-typing", "text");
    pool.tmux(&["kill-server"]).expect(0);
    pool.start_poold();
    wait_until("it is in doubt", PATIENCE, || state(&pool, &message) == "in_doubt");
    let status = pool.ctl(&["status"]).expect(1);
    assert!(status.stdout.contains("in doubt"), "{}", status.stdout);
    // The message holds its lane in the next pane too, whose receipt says nothing of it.
    pool.ok(&["restart", "web"]);
    let next = pool.ok(&["send", "web", "next"]);
    wait_until("it runs", PATIENCE, || pool.lifecycle("web") == "live");
    assert_eq!((state(&pool, &message), state(&pool, &next)), ("in_doubt".to_owned(), "queued".to_owned()));
    pool.ok(&["queue", "resolve", "web", &message, "--as", "retry"]);
    wait_until("both arrive", PATIENCE, || times(&pool, "text") + times(&pool, "next") == 2);
    assert_eq!((times(&pool, "text"), times(&pool, "next")), (1, 1));
}

#[test]
fn q06_while_tmux_is_stopped_nothing_is_typed_and_a_crash_changes_nothing() {
    let (pool, _) = reader();
    let stopped = Stopped::new(pool.tmux_pid().unwrap());
    let message = pool.ok(&["--timeout", "40s", "send", "web", "text"]);
    let why = || pool.json(&["--timeout", "30s", "queue", "show", "web", &message])["reason"].clone();
    wait_until("it says why it waits", PATIENCE, || why().is_string());
    pool.restart_poold();
    assert_eq!(state(&pool, &message), "queued", "it is not typed into an unknown state");
    drop(stopped);
    wait_until("it arrived", PATIENCE, || times(&pool, "text") == 1);
    pool.ok(&["send", "web", "--wait", "done", "next"]);
    wait_until("the next one arrived", PATIENCE, || times(&pool, "next") == 1);
    assert_eq!(times(&pool, "text"), 1, "never twice");
}
