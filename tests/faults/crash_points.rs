//! `poold` dies between any two steps. What it had begun is finished or undone by the next one,
//! once, and what cannot be known is said to be unknown.

use std::thread;

use serde_json::Value;

use super::support::{Stopped, crashing, lines_of, recorder};
use crate::harness::{Output, PATIENCE, Pool, Program, eventually, number, wait_until};

const STEPS: [&str; 4] = ["new-intent", "new-before-tmux", "new-after-tmux", "new-outcome"];
/// Each so often; `POOL_CRASH_ROUNDS` asks for more.
const ROUNDS: usize = 3;
/// What an abort ends with.
const ABORTED: i32 = 134;

/// Starts a session with a `poold` that dies at this point, then another `poold`; what the client
/// was told in the end.
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

/// The tags of the panes that there are.
fn tags(pool: &Pool) -> Vec<String> {
    pool.tmux_panes("#{@pool_id}")
}

/// The tags of what runs.
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
        assert!(
            ["failed", "starting"].contains(&state.as_str()),
            "{point}: nobody can say that it is {state}"
        );
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

/// A pool with a session that keeps what it is sent.
fn reader() -> (Pool, String) {
    let pool = Pool::new();
    let id = pool.script("web", &recorder(&pool));
    wait_until("it reads", PATIENCE, || !lines_of(&pool, "runs").is_empty());
    (pool, id)
}

/// Sends a message to a `poold` that dies at this point of its delivery; the message's id.
fn send_across_a_crash(pool: &Pool, point: &str, text: &str) -> String {
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(pool, point));
    pool.await_poold();
    let id = pool.ok(&["--timeout", "40s", "send", "web", text]);
    assert_eq!(pool.await_end(Program::Poold), ABORTED, "{point}: {}", pool.logs());
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    pool.await_poold();
    id
}

fn state(pool: &Pool, message: &str) -> String {
    pool.json(&["queue", "show", "web", message])["state"].as_str().unwrap().to_owned()
}

fn times(pool: &Pool, text: &str) -> usize {
    lines_of(pool, "got").iter().filter(|line| *line == text).count()
}

#[test]
fn q06_a_crash_before_typing_leaves_a_message_in_doubt_until_somebody_says() {
    let (pool, _) = reader();
    for round in 0..number("POOL_CRASH_ROUNDS", ROUNDS) {
        let text = format!("text {round}");
        let message = send_across_a_crash(&pool, "deliver-typing", &text);
        assert_eq!(state(&pool, &message), "in_doubt");
        let status = pool.ctl(&["status"]).expect(1);
        assert!(status.stdout.contains("in doubt"), "{}", status.stdout);
        // What comes after it is typed, and it is not.
        let next = format!("next {round}");
        let after = pool.ok(&["send", "web", &next]);
        pool.ok(&["queue", "resolve", "web", &message, "--as", "retry"]);
        for id in [&message, &after] {
            wait_until("it is typed", PATIENCE, || state(&pool, id) == "done");
        }
        wait_until("both arrive", PATIENCE, || times(&pool, &text) + times(&pool, &next) == 2);
        assert_eq!((times(&pool, &text), times(&pool, &next)), (1, 1));
    }
}

#[test]
fn q06_a_crash_after_typing_never_types_again() {
    let (pool, _) = reader();
    for round in 0..number("POOL_CRASH_ROUNDS", ROUNDS) {
        let text = format!("text {round}");
        let message = send_across_a_crash(&pool, "deliver-typed", &text);
        assert_eq!(state(&pool, &message), "in_doubt");
        wait_until("it arrived", PATIENCE, || times(&pool, &text) == 1);
        pool.ok(&["queue", "resolve", "web", &message, "--as", "done"]);
        assert_eq!(state(&pool, &message), "done");
        let next = format!("next {round}");
        pool.ok(&["send", "web", "--wait", "done", &next]);
        wait_until("the next one arrived", PATIENCE, || times(&pool, &next) == 1);
        assert_eq!(times(&pool, &text), 1, "never twice");
    }
}

#[test]
fn q06_a_crash_while_tmux_is_stopped_never_types_twice() {
    let (pool, _) = reader();
    let stopped = Stopped::new(pool.tmux_pid().unwrap());
    let message = send_across_a_crash(&pool, "deliver-typed", "text");
    assert_eq!(state(&pool, &message), "in_doubt");
    drop(stopped);
    pool.ok(&["--timeout", "30s", "sync"]);
    pool.ok(&["queue", "resolve", "web", &message, "--as", "done"]);
    pool.ok(&["send", "web", "--wait", "done", "next"]);
    wait_until("the next one arrived", PATIENCE, || times(&pool, "next") + times(&pool, "textnext") == 1);
    assert!(times(&pool, "text") + times(&pool, "textnext") <= 1, "{:?}", lines_of(&pool, "got"));
}
