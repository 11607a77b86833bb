//! Locks for users: one holder at a time, in order of arrival, whatever dies; a holder's `poolctl` commands
//! work, those of others on the session are refused.

use std::os::unix::net::UnixStream;
use std::thread;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::held::{await_waiting, events, has, hold, lines_of, lock, one_at_a_time, recorder, wants};
use crate::faults::support::crashing;
use crate::harness::{PATIENCE, Pool, Program, Talk, eventually, gone, is_stopped, send_signal, wait_until};

/// A pool with a session that records its input.
#[track_caller]
fn reader() -> Pool {
    let pool = Pool::with("[restart]\nbackoff = '50ms'\n[reaper]\ngrace = '300ms'\ninterval = '100ms'\n");
    pool.script("web", &recorder(&pool));
    wait_until("it reads", PATIENCE, || !lines_of(&pool, "runs").is_empty());
    pool
}

/// Kinds of a session's events, without those about its program's activity, which may come at any time.
#[track_caller]
fn kinds(pool: &Pool, session: &str) -> Vec<String> {
    let mut kinds = pool.event_kinds(session);
    kinds.retain(|kind| kind != "activity_changed");
    kinds
}

#[test]
fn under_a_lock_all_that_is_refused_to_others_is_done_and_the_exit_code_is_the_commands() {
    let pool = reader();
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    // Waits until the input was written, before its program is ended.
    let wrote =
        |text: &str| format!("until grep -qx {text} {}; do sleep 0.02; done", pool.path("got").display());
    let (wrote_text, wrote_woken) = (wrote("text"), wrote("woken"));
    let script = format!(
        "set -e; test \"$POOL_LOCK_SESSION\" = \"$({ctl} --json show web | sed 's/.*\"id\":\"\\([^\"]*\\)\".*/\\1/')\"; \
         {ctl} keys web x Enter; {ctl} rename web site; {ctl} send site --wait done text; {wrote_text}; \
         {ctl} restart site; {ctl} park site; {ctl} send site --wake --wait done woken; {wrote_woken}; \
         {ctl} kill site; {ctl} restart site; exit 7"
    );
    let told = pool.ctl(&["--timeout", "60s", "lock", "web", "--", "sh", "-ec", &script]).expect(7);
    assert_eq!((told.stderr.as_str(), pool.lifecycle("site").as_str()), ("", "live"), "{told:?}");
    assert_eq!(lock(&pool, "site"), Value::Null);
    wait_until("all of it ran", PATIENCE, || lines_of(&pool, "runs").len() == 4);
    assert_eq!(lines_of(&pool, "got"), ["x", "text", "woken"]);
    // The end of the command by a signal, and a command that cannot be run, are passed on too.
    let _killed = pool.ctl(&["lock", "site", "--", "sh", "-c", "kill -9 $$"]).expect(137);
    let _missing = pool.ctl(&["lock", "site", "--", "/nowhere/program"]).expect(127);
    // A session removed under its lock is gone, and its lock cannot be taken any more.
    let held = hold(&pool, "site", &[]);
    let _removed = held.ctl(&pool, &["rm", "--force", "site"]).expect(0);
    assert!([Some(0), Some(4)].contains(&held.release()));
    let _gone = pool.ctl(&["lock", "site", "--", "true"]).expect(3);
    assert_eq!(events(&pool, &["lock_granted"]).len(), 4);
}

#[test]
fn who_waits_for_a_lock_gets_it_in_the_order_of_coming() {
    let pool = reader();
    let first = hold(&pool, "web", &[]);
    let mut tokens = vec![first.number()];
    let mut waiters = Vec::new();
    for n in 1..=5 {
        waiters.push(wants(&pool, "web", &[]));
        await_waiting(&pool, "web", n);
    }
    assert_eq!(first.release(), Some(0));
    for (n, waiter) in waiters.into_iter().enumerate() {
        let held = has(waiter);
        let shown = lock(&pool, "web");
        assert_eq!((&shown["token"], &shown["waiting"]), (&json!(held.token), &json!(4 - n)), "{shown}");
        tokens.push(held.number());
        assert_eq!(held.release(), Some(0));
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    assert_eq!(one_at_a_time(&pool), 6);
}

#[test]
fn a_limit_on_the_wait_is_kept_and_says_who_holds_it() {
    let pool = reader();
    let held = hold(&pool, "web", &[]);
    for wait in ["0", "300ms", "1s"] {
        let told = pool.ctl(&["lock", "web", "--wait", wait, "--", "touch", "ran"]).expect(6);
        let holder = format!("by process {}", held.talk.pid());
        assert!(told.stderr.contains(&holder) && told.stderr.contains("sh -c"), "{told:?}");
    }
    await_waiting(&pool, "web", 0);
    assert!(!pool.path("work/ran").exists());
    let shown = lock(&pool, "web");
    assert_eq!((&shown["token"], &shown["holder"]["pid"]), (&json!(held.token), &json!(held.talk.pid())));
    let text = pool.ok(&["show", "web"]);
    let line = text.lines().find(|line| line.starts_with("locked")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(&format!("pid {}", held.talk.pid())) && line.contains("sh -c"), "{line}");
    assert_eq!(held.release(), Some(0));
    assert_eq!(lock(&pool, "web"), Value::Null);
}

#[test]
fn what_others_would_do_to_a_locked_session_is_refused_and_nothing_happens() {
    let pool = reader();
    let (agent, _) = pool.pane_pids("web");
    let before = kinds(&pool, "web");
    let held = hold(&pool, "web", &[]);
    let refused: [&[&str]; 9] = [
        &["kill", "web"],
        &["keys", "web", "x", "Enter"],
        &["restart", "web"],
        &["park", "web"],
        &["drain", "web"],
        &["rename", "web", "other"],
        &["clear", "web"],
        &["rm", "--force", "web"],
        &["rm", "--force", "--purge", "web"],
    ];
    for args in refused {
        let told = pool.ctl(args).expect(4);
        assert!(told.stderr.contains("locked") && told.stderr.contains("--force"), "{told:?}");
    }
    assert_eq!(pool.lifecycle("web"), "live");
    assert_eq!((pool.pane_pids("web").0, lines_of(&pool, "got").len()), (agent, 0));
    let mut after = kinds(&pool, "web");
    assert_eq!(after.pop().as_deref(), Some("lock_granted"));
    assert_eq!(after, before, "nothing happened");
    // The token of another session's lock gives no right to this one.
    pool.script("other", "exec sleep 1000");
    let foreign = hold(&pool, "other", &[]);
    let _refused = foreign.ctl(&pool, &["kill", "web"]).expect(4);
    assert_eq!(foreign.release(), Some(0));
    assert_eq!(held.release(), Some(0));
    pool.ok(&["keys", "web", "y", "Enter"]);
    wait_until("it was typed", PATIENCE, || lines_of(&pool, "got") == ["y"]);
}

#[test]
fn what_is_queued_looked_at_or_worked_waits_for_no_lock_and_what_is_typed_does() {
    let pool = reader();
    pool.script("other", "exec cat");
    let held = hold(&pool, "web", &[]);
    let quick = |args: &[&str]| pool.ctl(&[&["--timeout", "20s"], args].concat()).expect(0);
    let _labelled = quick(&["label", "web", "a=b"]);
    let _listed = quick(&["ls"]);
    let _pinned = quick(&["pin", "web"]);
    let _updated = quick(&["update", "web", "--max-restarts", "3"]);
    let _screen = quick(&["capture", "web"]);
    let work = quick(&["send", "web", "--kind", "note", "text"]);
    let script = format!("cat >{}", pool.path("worked").display());
    let _worked = quick(&["work", "web", "--once", "--", "sh", "-c", &script]);
    assert_eq!(pool.await_file("worked", |_| true), b"text");
    let done = pool.json(&["queue", "show", "web", work.text()]);
    assert_eq!(done["state"], "done");
    let message = quick(&["send", "web", "first"]);
    // A message sent later to another session has arrived.
    pool.ok(&["send", "other", "--wait", "done", "text"]);
    assert_eq!(pool.json(&["queue", "show", "web", message.text()])["state"], "queued");
    assert_eq!(lines_of(&pool, "got").len(), 0);
    assert_eq!(held.release(), Some(0));
    pool.ok(&["send", "web", "--wait", "done", "second"]);
    wait_until("both were typed", PATIENCE, || lines_of(&pool, "got") == ["first", "second"]);
    // A prompt sent under a lock follows the earlier ones.
    let held = hold(&pool, "web", &[]);
    pool.ok(&["send", "web", "third"]);
    let _sent = held.ctl(&pool, &["send", "web", "--wait", "done", "fourth"]).expect(0);
    wait_until("in order", PATIENCE, || lines_of(&pool, "got") == ["first", "second", "third", "fourth"]);
    assert_eq!(held.release(), Some(0));
}

#[test]
fn a_locked_session_is_not_evicted_not_started_by_itself_and_not_pruned() {
    let pool = Pool::with(
        "[pool]\nmax_sessions = 2\nidle_quiet = '100ms'\nidle_settle = '100ms'\n[restart]\nbackoff = '50ms'\n\
         [reaper]\ngrace = '200ms'\n[agents.keeper]\ncommand = 'cat'\nparkable = true\n",
    );
    let keeper = |name: &str| {
        let id = pool.ok(&["new", name, "--agent", "keeper"]);
        pool.ok(&["send", &id, "--wait", "done", "text"]);
        id
    };
    let kept = keeper("kept");
    let held = hold(&pool, &kept, &[]);
    // Another session that may be parked is parked instead; if there is none, no session is.
    keeper("quiet");
    pool.ok(&["new", "third", "--wait-slot", "30s", "--", "sleep", "1000"]);
    assert_eq!((pool.lifecycle(&kept).as_str(), pool.lifecycle("quiet").as_str()), ("live", "parked"));
    let _full = pool.ctl(&["new", "fourth", "--wait-slot", "1s", "--", "sleep", "1000"]).expect(5);
    assert_eq!(pool.lifecycle(&kept), "live");
    let _ended = held.ctl(&pool, &["kill", &kept]).expect(0);
    let told = pool.ctl(&["prune"]);
    assert_eq!(pool.lifecycle(&kept), "stopped", "{told:?}");
    assert_eq!(held.release(), Some(0));
    let _pruned = pool.ctl(&["prune"]).expect(0);
    let _gone = pool.ctl(&["show", &kept]).expect(3);
    // A program that ended is started again once its lock is free.
    let script = |name: &str| {
        format!(
            "echo run >>{0}.{name}; until [ -e {0}.go ]; do sleep 0.02; done; exit 1",
            pool.path("x").display()
        )
    };
    pool.ok(&["rm", "--force", "third"]);
    let new =
        |name: &str| pool.ok(&["new", name, "--restart", "on-failure", "--", "sh", "-c", &script(name)]);
    let locked = new("locked");
    let held = hold(&pool, &locked, &[]);
    new("free");
    std::fs::write(pool.path("x.go"), "").unwrap();
    wait_until("the free one is started again", PATIENCE, || lines_of(&pool, "x.free").len() > 1);
    pool.await_lifecycle(&locked, "stopped");
    wait_until("the free one once more", PATIENCE, || lines_of(&pool, "x.free").len() > 2);
    assert_eq!(lines_of(&pool, "x.locked").len(), 1);
    assert_eq!(held.release(), Some(0));
    wait_until("it is started", PATIENCE, || lines_of(&pool, "x.locked").len() > 1);
}

/// Pid of a holder's command.
#[track_caller]
fn command_of(held: &Talk) -> u32 {
    eventually("it has a command", PATIENCE, || crate::harness::children(held.pid()).first().copied())
}

#[test]
fn l06_a_lock_is_free_at_once_when_its_holder_is_killed() {
    let pool = reader();
    let held = hold(&pool, "web", &["--lease", "1h"]);
    let command = command_of(&held.talk);
    let next = wants(&pool, "web", &[]);
    await_waiting(&pool, "web", 1);
    let token = held.number();
    held.talk.end();
    let next = has(next);
    assert!(next.number() > token);
    wait_until("its command ends with it", PATIENCE, || gone(command));
    let released = events(&pool, &["lock_released"]);
    assert_eq!((released.len(), &released[0]["reason"]), (1, &json!("its holder died")));
    assert_eq!(next.release(), Some(0));
    assert_eq!(one_at_a_time(&pool), 2);
}

#[test]
fn l06_who_waits_and_leaves_leaves_the_line() {
    let pool = reader();
    let held = hold(&pool, "web", &[]);
    let (leaves, stays) = (wants(&pool, "web", &[]), {
        await_waiting(&pool, "web", 1);
        wants(&pool, "web", &[])
    });
    await_waiting(&pool, "web", 2);
    leaves.end();
    await_waiting(&pool, "web", 1);
    assert_eq!(held.release(), Some(0));
    assert_eq!(has(stays).release(), Some(0));
    assert_eq!(one_at_a_time(&pool), 2);
}

#[test]
fn l02_a_lock_holds_on_when_poold_is_killed() {
    let pool = reader();
    let held = hold(&pool, "web", &["--lease", "20s"]);
    let next = wants(&pool, "web", &[]);
    await_waiting(&pool, "web", 1);
    for _ in 0..2 {
        pool.restart_poold();
        let shown = lock(&pool, "web");
        assert_eq!((&shown["token"], &shown["holder"]["pid"]), (&json!(held.token), &json!(held.talk.pid())));
        let _refused = pool.ctl(&["kill", "web"]).expect(4);
        let _typed = held.ctl(&pool, &["send", "web", "--wait", "done", "text"]).expect(0);
        // The waiting client waits again.
        await_waiting(&pool, "web", 1);
    }
    wait_until("it was typed", PATIENCE, || lines_of(&pool, "got") == ["text", "text"]);
    let token = held.number();
    assert_eq!(held.release(), Some(0));
    let next = has(next);
    assert!(next.number() > token && next.number().epoch > token.epoch);
    assert_eq!(next.release(), Some(0));
    // A lock whose holder dies while no `poold` runs is free afterwards.
    let held = hold(&pool, "web", &["--lease", "1h"]);
    pool.kill9(Program::Poold);
    held.talk.end();
    pool.start_poold();
    assert_eq!(hold(&pool, "web", &[]).release(), Some(0));
    assert_eq!(one_at_a_time(&pool), 4);
}

#[test]
fn a_lease_is_over_when_it_is_whatever_else_is_due_later() {
    let pool = reader();
    pool.script("other", "exec sleep 1000");
    let (long, short) = (hold(&pool, "web", &["--lease", "15s"]), hold(&pool, "other", &["--lease", "6s"]));
    for held in [&long, &short] {
        send_signal(held.talk.pid(), Signal::SIGSTOP);
    }
    let revoked = || events(&pool, &["lock_revoked"]);
    wait_until("both are over", PATIENCE * 2, || revoked().len() == 2);
    let tokens: Vec<Value> = revoked().iter().map(|event| event["token"].clone()).collect();
    assert_eq!(tokens, [json!(short.token), json!(long.token)]);
    for mut held in [long, short] {
        send_signal(held.talk.pid(), Signal::SIGCONT);
        assert_eq!(held.talk.await_end(), Some(4));
    }
}

// A holder of a claim that slept past its lease and can settle nothing is tested with the claims
// (`queue::leases`).
#[test]
fn l05_a_holder_that_slept_past_its_lease_can_do_nothing() {
    let pool = reader();
    let held = hold(&pool, "web", &["--lease", "3s"]);
    let command = command_of(&held.talk);
    let next = wants(&pool, "web", &[]);
    await_waiting(&pool, "web", 1);
    send_signal(held.talk.pid(), Signal::SIGSTOP);
    wait_until("it is stopped", PATIENCE, || is_stopped(held.talk.pid()));
    let next = has(next);
    assert!(next.number() > held.number());
    let revoked = events(&pool, &["lock_revoked"]);
    assert_eq!((revoked.len(), &revoked[0]["token"]), (1, &json!(held.token)));
    // The command of the revoked lock still runs: no request under its token is carried out.
    let before = kinds(&pool, "web");
    let attempts: [&[&str]; 6] = [
        &["keys", "web", "x", "Enter"],
        &["send", "web", "text"],
        &["kill", "web"],
        &["restart", "web"],
        &["rename", "web", "other"],
        &["rm", "--force", "web"],
    ];
    for args in attempts {
        let _refused = held.ctl(&pool, args).expect(4);
    }
    assert_eq!(kinds(&pool, "web"), before);
    let shown = lock(&pool, "web");
    assert_eq!(shown["token"], json!(next.token));
    // Resumed, `poolctl lock` learns of the loss and ends its command.
    send_signal(held.talk.pid(), Signal::SIGCONT);
    let mut talk = held.talk;
    assert_eq!(talk.await_end(), Some(4));
    assert!(talk.errors().contains("lost"), "{}", talk.errors());
    wait_until("its command is over", PATIENCE, || gone(command));
    assert_eq!(lock(&pool, "web")["token"], json!(next.token), "it takes nothing back");
    let _typed = next.ctl(&pool, &["send", "web", "--wait", "done", "mine"]).expect(0);
    assert_eq!(next.release(), Some(0));
    wait_until("it arrived, and nothing else", PATIENCE, || lines_of(&pool, "got") == ["mine"]);
    assert_eq!(one_at_a_time(&pool), 2);
}

#[test]
fn force_takes_a_lock_away_before_all_who_wait() {
    let pool = reader();
    let held = hold(&pool, "web", &["--lease", "6s"]);
    let waits = wants(&pool, "web", &[]);
    await_waiting(&pool, "web", 1);
    let forced = hold(&pool, "web", &["--force"]);
    assert!(forced.number() > held.number());
    let revoked = events(&pool, &["lock_revoked"]);
    assert_eq!((revoked.len(), &revoked[0]["token"]), (1, &json!(held.token)));
    assert!(revoked[0]["reason"].as_str().unwrap().contains("force"), "{revoked:?}");
    let _stale = held.ctl(&pool, &["keys", "web", "x"]).expect(4);
    let mut talk = held.talk;
    assert_eq!(talk.await_end(), Some(4));
    assert_eq!(lock(&pool, "web")["waiting"], 1);
    assert_eq!(forced.release(), Some(0));
    assert_eq!(has(waits).release(), Some(0));
    assert_eq!(one_at_a_time(&pool), 3);
}

/// The reply to the n-th line sent by another process.
#[track_caller]
fn reply(rpc: &Talk, n: usize) -> Value {
    wait_until("it is answered", PATIENCE, || rpc.lines().len() > n || !rpc.errors().is_empty());
    let lines = rpc.lines();
    serde_json::from_str(lines.get(n).unwrap_or_else(|| panic!("{}", rpc.errors()))).unwrap()
}

const ASK: &str = r#"{"op":"once","request":{"lock":{"session":"web","purpose":"test","wait_ms":20000,"lease_ms":60000,"force":false}}}"#;

#[test]
fn a_lock_that_is_asked_for_twice_is_given_once_across_a_crash() {
    for point in ["lock-granted", "commit-begin", "commit-written", "commit-written:2"] {
        let pool = reader();
        pool.kill9(Program::Poold);
        pool.start_as(Program::Poold, crashing(&pool, point));
        let died = || pool.ended(Program::Poold).is_some();
        wait_until("it listens", PATIENCE, || died() || UnixStream::connect(pool.socket()).is_ok());
        let mut rpc = Talk::start(pool.poolctl().args(["--timeout", "40s", "rpc"]));
        rpc.say(ASK);
        wait_until(&format!("poold dies at {point}"), PATIENCE, died);
        pool.restart_poold();
        let answer = reply(&rpc, 0);
        // A client without an answer repeats its request.
        rpc.say(ASK);
        let again = reply(&rpc, 1);
        let locked = &again["ok"]["locked"];
        assert!(locked["token"].is_string() || locked["token"].is_object(), "{point}: {answer} {again}");
        if !answer["ok"].is_null() {
            assert_eq!(answer, again, "{point}");
        }
        assert_eq!(lock(&pool, "web")["holder"]["pid"], json!(rpc.pid()), "{point}");
        assert_eq!(lock(&pool, "web")["waiting"], 0, "{point}: not twice in line");
        let _refused = pool.ctl(&["kill", "web"]).expect(4);
        rpc.end();
        assert_eq!(hold(&pool, "web", &[]).release(), Some(0), "{point}");
        one_at_a_time(&pool);
    }
}

#[test]
fn a_lock_that_lapses_while_poold_dies_is_given_to_one() {
    let pool = reader();
    pool.kill9(Program::Poold);
    pool.start_as(Program::Poold, crashing(&pool, "lock-lapsed"));
    pool.await_poold();
    let held = hold(&pool, "web", &["--lease", "8s"]);
    let next = wants(&pool, "web", &[]);
    await_waiting(&pool, "web", 1);
    send_signal(held.talk.pid(), Signal::SIGSTOP);
    assert_eq!(pool.await_end(Program::Poold), 134);
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    let next = has(next);
    assert!(next.number() > held.number());
    send_signal(held.talk.pid(), Signal::SIGCONT);
    let mut talk = held.talk;
    assert_eq!(talk.await_end(), Some(4));
    assert_eq!(lock(&pool, "web")["token"], json!(next.token));
    assert_eq!(next.release(), Some(0));
    one_at_a_time(&pool);
}

#[test]
fn many_who_lock_and_die_leave_the_lock_free() {
    let pool = reader();
    thread::scope(|scope| {
        for lane in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for n in 0..4 {
                    let held = hold(pool, "web", &["--lease", "1h"]);
                    if (lane + n) % 2 == 0 {
                        drop(held.talk.end());
                    } else {
                        assert_eq!(held.release(), Some(0));
                    }
                }
            });
        }
    });
    wait_until("the lock is free", PATIENCE, || lock(&pool, "web") == Value::Null);
    assert_eq!(one_at_a_time(&pool), 16);
    pool.ok(&["kill", "web"]);
}

#[test]
fn under_a_lock_only_the_prompts_of_its_holder_are_typed() {
    let pool = reader();
    let held = hold(&pool, "web", &[]);
    let prompt = |args: &[&str]| held.ctl(&pool, &[&["send", "web"], args].concat());
    let _done = prompt(&["--wait", "done", "one"]).expect(0);
    // Neither what others send later, nor what is no prompt, opens the session to others.
    let other = pool.ok(&["send", "web", "other"]);
    let urgent = pool.ok(&["send", "web", "--priority", "50", "urgent"]);
    let _note = prompt(&["--kind", "note", "text"]).expect(0);
    pool.script("busy", "exec cat");
    pool.ok(&["send", "busy", "--wait", "done", "text"]);
    assert_eq!(pool.json(&["queue", "show", "web", &other])["state"], "queued");
    // Of the prompts of others, those go first that come before the holder's in the queue.
    let _two = prompt(&["--priority", "10", "--wait", "done", "two"]).expect(0);
    wait_until("two were typed", PATIENCE, || lines_of(&pool, "got") == ["one", "urgent", "two"]);
    let late = pool.ok(&["send", "web", "--priority", "100", "late"]);
    let _three = prompt(&["--wait", "done", "three"]).expect(0);
    let order = ["one", "urgent", "two", "late", "other", "three"];
    wait_until("in order", PATIENCE, || lines_of(&pool, "got") == order);
    let state = |id: &str| pool.json(&["queue", "show", "web", id])["state"].clone();
    assert_eq!((state(&urgent), state(&late)), (json!("done"), json!("done")));
    assert_eq!(held.release(), Some(0));
}

#[test]
fn l02_locks_inside_each_other_stay_so_when_poold_is_killed() {
    let pool = reader();
    pool.script("site", "exec cat");
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    let wait = format!("echo ready; until [ -e {} ]; do sleep 0.02; done", pool.path("go").display());
    let inner = format!(
        "{wait}; set -e; {ctl} send web --wait done inner; {ctl} lock web -- {ctl} keys web x Enter; \
         {ctl} lock site -- true"
    );
    let mut outer = pool.poolctl();
    outer.args(["lock", "web", "--", ctl, "lock", "site", "--", "sh", "-c", &inner]);
    let mut outer = Talk::start(&mut outer);
    wait_until("both are held", PATIENCE, || !outer.lines().is_empty());
    pool.kill9(Program::Poold);
    pool.start(Program::Poold);
    pool.await_complete();
    std::fs::write(pool.path("go"), "").unwrap();
    assert_eq!(outer.await_end(), Some(0), "{}", outer.errors());
    wait_until("both were typed", PATIENCE, || lines_of(&pool, "got") == ["inner", "x"]);
    assert_eq!((lock(&pool, "web"), lock(&pool, "site")), (Value::Null, Value::Null));
}

#[test]
fn a_repeated_request_gets_its_answer_although_its_lock_has_ended() {
    let pool = reader();
    pool.script("site", "exec cat");
    let (web, site) = (hold(&pool, "web", &[]), hold(&pool, "site", &[]));
    let send = ["send", "web", "--kind", "note", "--op-id", "once", "text"];
    let first = web.ctl(&pool, &send).expect(0).text().to_owned();
    let remove = ["rm", "--force", "site", "--op-id", "removal"];
    let _removed = site.ctl(&pool, &remove).expect(0);
    let token = web.token.clone();
    assert_eq!(web.release(), Some(0));
    let under = |token: &str, args: &[&str]| {
        crate::harness::Output::of(pool.poolctl().env("POOL_LOCK_TOKEN", token).args(args), b"")
    };
    assert_eq!(under(&token, &send).expect(0).text(), first);
    let _refused = under(&token, &["send", "web", "--kind", "note", "text"]).expect(4);
    let _repeated = under(&site.token, &remove).expect(0);
    let _ended = site.release();
}
