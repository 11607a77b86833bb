//! Verbs over many sessions, ends from inside of a session, and drains with a deadline.

use std::fs;

use super::support::{KEEPER, await_slots, events, keeper};
use crate::harness::{PATIENCE, Pool, Program, Talk, clock_ms, number, wait_until};

/// Sessions that are ended together.
const MANY: usize = 8;

/// Starts sessions with this script, which makes the file `ready` once it has set its traps.
fn start(pool: &Pool, count: usize, script: &str) -> Vec<String> {
    let start = |n| pool.ok(&["new", &format!("s{n}"), "--label", "team=core", "--", "sh", "-c", script]);
    let ids: Vec<String> = (0..count).map(start).collect();
    for id in &ids {
        let ready = pool.dir(id).join("work/ready");
        wait_until("it has set its traps", PATIENCE, || ready.exists());
    }
    ids
}

/// Starts sessions that note their TERM, and end by themselves once all have one; TERM and HUP do not end them.
/// Those that are started again sleep.
fn companions(pool: &Pool) -> Vec<String> {
    let noted = pool.path("noted");
    fs::create_dir(&noted).unwrap();
    let noted = noted.display();
    let script = format!(
        "[ ! -e ready ] || exec sleep 1000; trap '' HUP; trap ': >{noted}/$POOL_SESSION' TERM; : >ready; \
         until set -- {noted}/* && [ $# -ge {MANY} ]; do sleep 0.1; done; exit 0"
    );
    start(pool, MANY, &script)
}

#[test]
fn c13_what_does_not_end_at_term_is_waited_for_at_the_same_time() {
    let pool = Pool::with("[pool]\nmax_sessions = 16\n[reaper]\ngrace = '10m'\n");
    let ids = companions(&pool);
    let other = pool.script("other", "exec sleep 1000");
    let told = pool.ok(&["kill", "--label", "team=core"]);
    assert!(told.starts_with("8 sessions to end\n"), "{told}");
    for id in &ids {
        let shown = pool.show(id);
        assert_eq!((&shown["reason"], &shown["exit"]["code"]), (&"killed".into(), &0.into()), "{shown}");
    }
    assert_eq!(pool.lifecycle(&other), "live");
}

#[test]
fn c13_what_is_deaf_to_all_but_kill_ends_within_one_grace() {
    let (many, grace) = (number("POOL_MANY", MANY), 4000);
    let config = format!("[pool]\nmax_sessions = {}\n[reaper]\ngrace = '{grace}ms'\n", many + 8);
    let pool = Pool::with(&config);
    let ids = start(&pool, many, "trap '' TERM HUP; : >ready; exec sleep 1000");
    pool.ok(&["kill", "--label", "team=core"]);
    let asked = events(&pool, "session_draining");
    let ends: Vec<i64> = ids
        .iter()
        .map(|id| pool.show(id)["exit"].clone())
        .map(|exit| {
            assert_eq!(exit["signal"], 9, "{exit}");
            clock_ms(&exit["at"])
        })
        .collect();
    // By the records of `poold` and the inits, so that a slow test or `poolctl` takes no part.
    let took = ends.iter().max().unwrap() - asked.iter().map(|event| clock_ms(&event["at"])).min().unwrap();
    let took = took.rem_euclid(24 * 3600 * 1000);
    // If the sessions were ended one after the other, that would take as many graces.
    let most = grace * i64::try_from(many).unwrap() / 2;
    assert!((grace..most).contains(&took), "{many} sessions took {took} ms");
}

#[test]
fn c13_those_of_a_selection_that_run_are_restarted_at_the_same_time_and_what_is_over_stays_so() {
    let pool = Pool::with("[pool]\nmax_sessions = 16\n[reaper]\ngrace = '10m'\n");
    let ids = companions(&pool);
    let over = pool.ok(&["new", "over", "--label", "team=core", "--", "true"]);
    pool.await_lifecycle(&over, "stopped");
    let other = pool.script("other", "exec sleep 1000");
    let is = |id: &str, lifecycle: &str, runs: u32| {
        let shown = pool.show(id);
        assert_eq!(
            (&shown["lifecycle"], &shown["incarnations"]),
            (&lifecycle.into(), &runs.into()),
            "{shown}"
        );
    };
    for (selection, runs, of_other) in [("--label=team=core", 2, 1), ("--all", 3, 2)] {
        let told = pool.ok(&["restart", selection]);
        let size = MANY + usize::from(selection == "--all");
        assert!(told.starts_with(&format!("{size} sessions to restart\n")), "{told}");
        ids.iter().for_each(|id| is(id, "live", runs));
        is(&other, "live", of_other);
        is(&over, "stopped", 1);
    }
}

#[test]
fn c13_down_ends_all_sessions_at_the_same_time() {
    let pool = Pool::bare("[pool]\nmax_sessions = 16\n[reaper]\ngrace = '10m'\n");
    pool.ok(&["up"]);
    let ids = companions(&pool);
    pool.ok(&["down", "--stop-sessions"]);
    pool.ok(&["up"]);
    for id in &ids {
        let shown = pool.show(id);
        assert_eq!((&shown["reason"], &shown["exit"]["code"]), (&"killed".into(), &0.into()), "{shown}");
    }
}

#[test]
fn g20_one_command_ends_and_removes_all_sessions() {
    let pool = Pool::new();
    let running = pool.script("running", "exec sleep 1000");
    let over = pool.ok(&["new", "over", "--label", "team=core", "--", "true"]);
    pool.await_lifecycle(&over, "stopped");
    pool.ok(&["pin", "--label", "team=core"]);
    assert_eq!(pool.show(&over)["policy"]["pinned"], true);
    pool.ctl(&["pin", "--label", "team=web"]).expect(3);
    assert_eq!(pool.ok(&["rm", "--all", "--stopped", "--purge"]), "1 session to remove\nsess_2  removed");
    assert_eq!(pool.lifecycle(&running), "live");
    assert_eq!(pool.ok(&["rm", "--all", "--purge"]), "1 session to remove\nsess_1  removed");
    assert_eq!(pool.ok(&["rm", "--all"]), "no session exists");
    assert_eq!(pool.ok(&["kill", "--all"]), "no session runs");
    await_slots(&pool, 0);
}

#[test]
fn p26_a_drain_is_ended_at_its_deadline_though_poold_was_killed_meanwhile() {
    let pool = Pool::with(&format!("[pool]\nidle_quiet = '200ms'\nidle_settle = '200ms'\n{KEEPER}"));
    let id = keeper(&pool, "web");
    // Nobody works it.
    pool.ok(&["send", &id, "--kind", "observation", "one"]);
    pool.ok(&["drain", &id, "--deadline", "1h"]);
    let shown = pool.show(&id);
    assert!(shown["drain_deadline"].is_string(), "{shown}");
    assert!(pool.ok(&["show", &id]).contains("ended at latest"));
    pool.ok(&["drain", &id]);
    assert_eq!(pool.show(&id)["drain_deadline"], shown["drain_deadline"], "a drain without one keeps it");
    pool.restart_poold();
    assert_eq!(pool.show(&id)["drain_deadline"], shown["drain_deadline"], "it is on disk");
    pool.ok(&["drain", &id, "--deadline", "1s"]);
    pool.restart_poold();
    let over = pool.await_lifecycle(&id, "stopped");
    assert_eq!((&over["reason"], &over["queue"]["queued"]), (&"drain_deadline".into(), &1.into()), "{over}");
    assert!(over["drain_deadline"].is_null());
    assert_eq!(events(&pool, "drain_deadline_set").len(), 2);
    let told = pool.ctl(&["drain", "--wait", &id]).expect(1);
    assert!(
        told.stderr.contains("ended by its deadline") && told.stderr.contains("not worked: 1"),
        "{told:?}"
    );
}

#[test]
fn p26_who_waits_for_a_drain_with_a_deadline_is_answered_when_it_has_stopped() {
    let pool = Pool::new();
    // It writes all the time, so that it never counts as idle.
    let id = pool.script("web", "while :; do echo busy; sleep 0.05; done");
    let told = pool.ctl(&["drain", &id, "--wait", "--deadline", "300ms"]).expect(1);
    assert!(told.stderr.contains("its work may be cut off"), "{told:?}");
    assert_eq!(pool.show(&id)["reason"], "drain_deadline");
    assert!(!pool.ok(&["show", &id]).contains("finished its queue"), "it was empty");
    let free = pool.script("free", "exec sleep 1000");
    pool.ok(&["drain", &free, "--wait", "--deadline", "1h"]);
    assert_eq!(pool.show(&free)["reason"], "drained");
}

#[test]
fn a_drain_says_what_it_waits_for() {
    let pool = Pool::new();
    let id = pool.script("web", "while :; do echo busy; sleep 0.05; done");
    pool.ok(&["drain", &id]);
    wait_until("it says what it waits for", PATIENCE, || {
        let shown = pool.ok(&["show", &id]);
        shown.contains("its program is writing") && shown.contains("`poolctl kill web`")
    });
    pool.ok(&["kill", &id]);
}

#[test]
fn a_pool_that_is_being_stopped_starts_nothing_and_says_who_stops_it() {
    let pool = Pool::new();
    let hold = || {
        let mut stopping = Talk::start(pool.poolctl().arg("rpc"));
        stopping.say("\"hold_starts\"");
        wait_until("it is answered", PATIENCE, || !stopping.lines().is_empty());
        assert!(stopping.lines()[0].contains("ok"), "{:?}", stopping.lines());
        stopping
    };
    let (first, second) = (hold(), hold());
    let refused = pool.ctl(&["new", "web", "--", "sleep", "1000"]).expect(5);
    let by = format!("by process {} and process {}", first.pid(), second.pid());
    assert!(refused.stderr.contains(&by), "{refused:?}");
    first.end();
    second.end();
    wait_until("sessions are started again", PATIENCE, || {
        pool.ctl(&["new", "web", "--", "sleep", "1000"]).code == 0
    });
}

/// A program that takes a moment to end.
const SLOW: &str = "trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.1; done";

#[test]
fn a_session_is_removed_with_its_files_while_it_is_being_restarted() {
    let pool = Pool::new();
    for flags in [&["--force", "--purge"][..], &["--archive"], &[]] {
        let id = pool.script("web", SLOW);
        let logs = pool.dir(&id).join("logs");
        let mut restart = Talk::start(pool.poolctl().args(["restart", &id]));
        pool.await_lifecycle(&id, "draining");
        pool.ok(&[&["rm", &id], flags].concat());
        restart.await_end();
        assert!(!logs.exists(), "{flags:?}");
    }
}

#[test]
fn a_removal_that_is_refused_after_the_end_of_the_session_says_that_it_ended() {
    let pool = Pool::new();
    let id = pool.script("web", SLOW);
    let mut remove = Talk::start(pool.poolctl().args(["rm", &id]));
    pool.await_lifecycle(&id, "draining");
    let _lock = Talk::start(pool.poolctl().args(["lock", &id, "--", "sleep", "1000"]));
    assert_eq!(remove.await_end(), Some(4));
    assert!(remove.errors().contains("what ran in it was ended"), "{}", remove.errors());
    assert_eq!(pool.show(&id)["lifecycle"], "stopped");
}

/// A session that runs this once by `poolctl`, in itself.
fn from_inside(pool: &Pool, name: &str, verb: &str) -> String {
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    pool.script(name, &format!("if [ ! -e done ]; then : >done; {ctl} {verb} - ; fi; exec sleep 1000"))
}

#[test]
fn c10_a_session_ends_parks_restarts_and_removes_itself_from_inside() {
    let pool = Pool::new();
    let killed = from_inside(&pool, "killed", "kill");
    let parked = from_inside(&pool, "parked", "park");
    let restarted = from_inside(&pool, "restarted", "restart");
    let removed = from_inside(&pool, "removed", "rm");
    let drained = from_inside(&pool, "drained", "drain --deadline 0");
    assert_eq!(pool.await_lifecycle(&killed, "stopped")["reason"], "killed");
    assert_eq!(pool.await_lifecycle(&parked, "parked")["reason"], "parked");
    pool.await_lifecycle(&drained, "stopped");
    wait_until("it is removed", PATIENCE, || pool.ctl(&["show", &removed]).code == 3);
    wait_until("it runs again", PATIENCE, || {
        let shown = pool.show(&restarted);
        shown["incarnations"] == 2 && shown["lifecycle"] == "live"
    });
    wait_until("nothing else runs", PATIENCE, || {
        let live = pool.show(&restarted);
        let tags = pool.tmux_panes("#{@pool_id}");
        live["lifecycle"] == "live"
            && tags.len() == 1
            && pool.marked().iter().all(|(_, tag)| tags.contains(tag))
    });
    await_slots(&pool, 1);
    let deleted = events(&pool, "session_deleted");
    assert_eq!((deleted.len(), &deleted[0]["session"]), (1, &removed.into()), "{deleted:#?}");
}

#[test]
fn c10_a_session_that_ends_all_from_inside_ends_the_others_and_itself() {
    let pool = Pool::new();
    let others = ["one", "two"].map(|name| pool.script(name, "exec sleep 1000"));
    let ctl = env!("CARGO_BIN_EXE_poolctl");
    let own = pool.script("own", &format!("{ctl} kill --all; exec sleep 1000"));
    for id in others.iter().chain([&own]) {
        assert_eq!(pool.await_lifecycle(id, "stopped")["reason"], "killed");
    }
    wait_until("nothing is left of them", PATIENCE, || pool.marked().is_empty());
}

#[test]
fn w05_numeric_names_go_on_above_those_of_other_sessions_in_tmux() {
    let pool = Pool::with("[pool]\nnaming = 'numeric'\n");
    let sleeper = || pool.ok(&["new", "--", "sleep", "1000"]);
    let first = sleeper();
    let foreign = |name: &str| pool.tmux_text(&["new-session", "-d", "-s", name, "sleep 1000"]);
    foreign("7");
    pool.ok(&["sync"]);
    let next = sleeper();
    assert_eq!((&pool.show(&first)["name"], &pool.show(&next)["name"]), (&"1".into(), &"8".into()));
    // Nobody has looked at tmux since: only the launch finds that the name is taken.
    let watch = pool.pid(Program::Watch).unwrap();
    crate::harness::send_signal(watch, nix::sys::signal::Signal::SIGSTOP);
    foreign("9");
    let next = sleeper();
    crate::harness::send_signal(watch, nix::sys::signal::Signal::SIGCONT);
    let shown = pool.show(&next);
    assert_eq!((&shown["name"], &shown["workspace"]), (&"10".into(), &"10".into()), "{shown}");
    // A name that was asked for is no other.
    foreign("50");
    pool.ctl(&["new", "50", "--", "sleep", "1000"]).expect(4);
    pool.ok(&["sync"]);
    let names = pool.tmux_sessions();
    assert!(["7", "9", "50"].iter().all(|name| names.iter().any(|found| found == name)), "{names:?}");
}
