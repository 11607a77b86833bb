//! Restart policies: whether a program that ended is started again, how often, and when no more.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::support::{await_slots, events, lines, restart_and_look, running};
use crate::harness::{PATIENCE, Pool, Talk, eventually, gone, send_signal, wait_until};

/// A script that notes each of its runs and ends with `end` the first `times` times; then it stays.
fn ends(times: usize, end: &str) -> String {
    format!("echo run >>runs; [ $(wc -l <runs) -gt {times} ] && exec sleep 1000; {end}")
}

const QUICK: &str = "[restart]\nbackoff = '50ms'\nmax = 5\n[reaper]\ngrace = '200ms'\n";

#[track_caller]
fn restarting(pool: &Pool, name: &str, policy: &str, script: &str) -> String {
    pool.ok(&["new", name, "--restart", policy, "--", "sh", "-c", script])
}

#[track_caller]
fn await_runs(pool: &Pool, session: &str, runs: usize) {
    wait_until(&format!("{session} runs {runs} times"), PATIENCE, || {
        lines(pool, session, "runs").len() == runs
    });
}

#[test]
fn each_policy_restarts_what_it_says() {
    let pool = Pool::with(QUICK);
    for (name, policy, end, runs) in [
        ("a", "no", "exit 1", 1),
        ("b", "on-failure", "exit 0", 1),
        ("c", "on-failure", "exit 1", 3),
        ("d", "on-failure", "kill -9 $$", 3),
        ("e", "always", "exit 0", 3),
        ("f", "always", "exit 1", 3),
    ] {
        restarting(&pool, name, policy, &ends(2, end));
        await_runs(&pool, name, runs);
        let shown = pool.await_lifecycle(name, if runs == 1 { "stopped" } else { "live" });
        assert_eq!(shown["restart_policy"], policy);
        assert_eq!(
            (&shown["restarts"], &shown["incarnations"]),
            (&(runs - 1).into(), &runs.into()),
            "{name}"
        );
    }
    // Sessions that were not restarted stay so.
    for name in ["a", "b"] {
        assert_eq!(
            (pool.lifecycle(name).as_str(), &pool.show(name)["budget"]["due_at"]),
            ("stopped", &Value::Null)
        );
        assert_eq!(lines(&pool, name, "runs").len(), 1);
    }
}

#[test]
fn the_budget_ends_and_somebody_renews_it() {
    let pool = Pool::with(QUICK);
    let id = restarting(&pool, "web", "always", "echo run >>runs; exit 3");
    wait_until("it is given up", PATIENCE, || pool.show(&id)["budget"]["exhausted"] == true);
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["exit"]["code"]), (&"stopped".into(), &3.into()));
    assert_eq!(lines(&pool, &id, "runs").len(), 6, "the first and five restarts");
    assert_eq!(events(&pool, "restarts_exhausted").len(), 1);
    let status = pool.ctl(&["status"]).expect(1);
    assert!(status.stdout.contains("web"), "{}", status.stdout);
    assert!(pool.ok(&["show", &id]).contains("restart"), "{}", pool.ok(&["show", &id]));
    // Neither a crash nor a reload of the configuration resets the budget.
    restart_and_look(&pool);
    assert_eq!((&pool.show(&id)["budget"]["exhausted"], lines(&pool, &id, "runs").len()), (&true.into(), 6));
    std::fs::write(pool.dir(&id).join("work/runs"), "").unwrap();
    pool.ok(&["restart", &id]);
    wait_until("it is given up again", PATIENCE, || pool.show(&id)["budget"]["exhausted"] == true);
    assert_eq!(lines(&pool, &id, "runs").len(), 6, "all of it again");
}

#[test]
fn back_off_and_budget_survive_the_death_of_poold() {
    let pool = Pool::with("[restart]\nbackoff = '400ms'\nmax = 3\n[reaper]\ngrace = '200ms'\n");
    let id = restarting(&pool, "web", "on-failure", "echo run >>runs; exit 3");
    for round in 0..3 {
        let before = eventually("it is due", PATIENCE, || {
            let shown = pool.show(&id);
            let budget = &shown["budget"];
            (!budget["due_at"].is_null() || budget["exhausted"] == true).then_some(shown)
        });
        pool.restart_poold();
        let after = pool.show(&id);
        if before["incarnations"] == after["incarnations"] && !after["budget"]["due_at"].is_null() {
            assert_eq!(before["budget"], after["budget"], "round {round}");
        }
    }
    wait_until("it is given up", PATIENCE, || pool.show(&id)["budget"]["exhausted"] == true);
    assert_eq!(lines(&pool, &id, "runs").len(), 4, "the first start and three restarts, whatever died");
}

#[test]
fn what_was_killed_stays_so() {
    let pool = Pool::with(QUICK);
    let id = restarting(&pool, "web", "always", "echo run >>runs; exec sleep 1000");
    await_runs(&pool, &id, 1);
    pool.ok(&["kill", &id]);
    // Also between two of its runs.
    let failing = pool.ok(&["new", "late", "--restart", "always", "--max-restarts", "100", "--", "false"]);
    wait_until("it is to start again", PATIENCE, || !pool.show(&failing)["budget"]["due_at"].is_null());
    pool.ok(&["kill", &failing]);
    let shown = pool.await_lifecycle(&failing, "stopped");
    assert_eq!((&shown["reason"], &shown["budget"]["due_at"]), (&"killed".into(), &Value::Null), "{shown}");
    restart_and_look(&pool);
    for session in [&id, &failing] {
        let shown = pool.show(session);
        assert_eq!((&shown["lifecycle"], &shown["reason"]), (&"stopped".into(), &"killed".into()));
        assert_eq!(shown["budget"]["due_at"], Value::Null);
    }
    assert_eq!(lines(&pool, &id, "runs").len(), 1);
    assert!(running(&pool).is_empty());
}

#[test]
fn always_starts_again_what_its_server_took_along() {
    let pool = Pool::with(QUICK);
    let always = restarting(&pool, "web", "always", "echo run >>runs; exec sleep 1000");
    let other = restarting(&pool, "other", "on-failure", "echo run >>runs; exec sleep 1000");
    await_runs(&pool, &always, 1);
    await_runs(&pool, &other, 1);
    let server = pool.tmux_pid().unwrap();
    send_signal(server, Signal::SIGKILL);
    wait_until("the server is gone", PATIENCE, || gone(server));
    await_runs(&pool, &always, 2);
    assert_eq!(pool.await_lifecycle(&always, "live")["incarnations"], 2);
    pool.await_lifecycle(&other, "lost");
}

#[test]
fn a_prompt_says_when_its_session_is_started_again() {
    let pool = Pool::with("[restart]\nbackoff = '1m'\n");
    let id = pool.ok(&["new", "web", "--restart", "always", "--", "false"]);
    wait_until("it is to start again", PATIENCE, || !pool.show(&id)["budget"]["due_at"].is_null());
    let message = pool.ok(&["send", &id, "text"]);
    let shown = pool.json(&["queue", "show", &id, &message]);
    let why = shown["reason"].as_str().unwrap_or_default();
    assert!(why.starts_with("its session is started again at "), "{shown}");
}

#[test]
fn a_restart_waits_for_a_slot_like_everybody() {
    let pool = Pool::with(&format!("[pool]\nmax_sessions = 1\n{QUICK}"));
    let script = "echo run >>runs; [ -e stay ] && exec sleep 1000; exit 1";
    // More restarts than it can use up before the other one has its slot.
    let id =
        pool.ok(&["new", "web", "--restart", "always", "--max-restarts", "100", "--", "sh", "-c", script]);
    // In the pause before the next run, another session takes the slot.
    let next = pool.ok(&["new", "next", "--wait-slot", "20s", "--", "sleep", "1000"]);
    wait_until("it is to start again", PATIENCE, || !pool.show(&id)["budget"]["due_at"].is_null());
    wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
    let message = pool.ok(&["send", &id, "text"]);
    let shown = pool.json(&["queue", "show", &id, &message]);
    assert_eq!(shown["reason"], "its session waits for a slot", "{shown}");
    std::fs::write(pool.dir(&id).join("work/stay"), "").unwrap();
    let runs = lines(&pool, &id, "runs").len();
    pool.ok(&["kill", &next]);
    await_runs(&pool, &id, runs + 1);
    assert_eq!(pool.await_lifecycle(&id, "live")["lifecycle"], "live");
    pool.ok(&["kill", &id]);
    await_slots(&pool, 0);
}

#[test]
fn what_could_not_start_again_for_its_directory_is_not_restarted() {
    let pool = Pool::new();
    let cwd = pool.state().join("project");
    std::fs::create_dir(&cwd).unwrap();
    let id = pool.ok(&["new", "web", "--cwd", cwd.to_str().unwrap(), "--", "sleep", "1000"]);
    std::fs::remove_dir(&cwd).unwrap();
    let told = pool.ctl(&["restart", "web"]).expect(2);
    assert!(told.stderr.contains("is not a directory; nothing was ended"), "{told:?}");
    let shown = pool.show(&id);
    assert_eq!((&shown["lifecycle"], &shown["incarnations"]), (&"live".into(), &1.into()));
    std::fs::create_dir(&cwd).unwrap();
    let (logs, aside) = (pool.dir(&id).join("logs"), pool.dir(&id).join("aside"));
    std::fs::rename(&logs, &aside).unwrap();
    std::os::unix::fs::symlink(&aside, &logs).unwrap();
    let told = pool.ctl(&["restart", "web"]).expect(1);
    assert!(told.stderr.contains("is a link") && told.stderr.contains("nothing was ended"), "{told:?}");
    assert_eq!(pool.show(&id)["incarnations"], 1);
    std::fs::remove_file(&logs).unwrap();
    std::fs::rename(&aside, &logs).unwrap();
    pool.ok(&["restart", "web"]);
}

#[test]
fn what_is_just_ending_is_drained_once_it_has() {
    let pool = Pool::new();
    let id = pool.script("slow", "trap 'sleep 1; exit' TERM HUP; touch ready; while :; do sleep 0.1; done");
    wait_until("it listens", PATIENCE, || pool.state().join(format!("sessions/{id}/work/ready")).exists());
    let mut restart = Talk::start(pool.poolctl().args(["--timeout", "30s", "restart", "slow"]));
    wait_until("it ends", PATIENCE, || pool.lifecycle(&id) == "draining");
    pool.ok(&["drain", "--wait", "slow"]);
    assert_eq!(pool.lifecycle(&id), "stopped");
    assert_eq!(restart.await_end(), Some(0));
}
