//! The cap on running sessions holds, whatever dies, and no slot is lost.

use std::thread;

use serde_json::Value;

use super::support::{await_slots, few_slots, keeper, most_running, running, slots, states};
use crate::harness::{Output, PATIENCE, Pool, eventually, number, wait_until};

const CREATORS: usize = 9;
/// Rounds in a normal run; `POOL_CAP_ROUNDS` sets more.
const ROUNDS: usize = 5;

/// Creates sessions all at once; returns each client's output.
fn create(pool: &Pool, round: usize) -> Vec<Output> {
    thread::scope(|scope| {
        let one = |n: usize| {
            let name = format!("r{round}-{n}");
            let args = ["--timeout", "40s", "new", &name, "--op-id", &name, "--", "sleep", "1000"];
            // A client that finds no `poold` repeats its request.
            let told = || Some(pool.ctl(&args)).filter(|told| told.code != 7);
            eventually("there is a poold", PATIENCE, told)
        };
        let all: Vec<_> = (0..CREATORS).map(|n| scope.spawn(move || one(n))).collect();
        all.into_iter().map(|creator| creator.join().unwrap()).collect()
    })
}

/// Removes all sessions.
fn clear(pool: &Pool) {
    // Without a reaper no end is proved.
    pool.await_complete();
    for session in pool.lines(&["ls", "--all"]) {
        pool.ok(&["rm", "--force", "--purge", session["id"].as_str().unwrap()]);
    }
    await_slots(pool, 0);
}

#[test]
fn g08_p22_the_cap_holds_among_many_creators_with_kills_between() {
    let pool = Pool::with("[pool]\nmax_sessions = 2\n[reaper]\ngrace = '200ms'\n");
    for round in 0..number("POOL_CAP_ROUNDS", ROUNDS) {
        let (most, told) = most_running(&pool, || {
            thread::scope(|scope| {
                let creators = scope.spawn(|| create(&pool, round));
                if round % 2 == 1 {
                    wait_until("something is created", PATIENCE, || !running(&pool).is_empty());
                    pool.restart_poold();
                }
                creators.join().unwrap()
            })
        });
        assert!(most <= 2, "round {round}: {most} ran");
        assert!(told.iter().all(|told| [0, 5].contains(&told.code)), "{told:#?}");
        let made = told.iter().filter(|told| told.code == 0).count();
        assert_eq!(made, 2, "round {round}: {told:#?}\n{}", pool.logs());
        assert_eq!((slots(&pool), running(&pool).len()), (2, 2), "round {round}");
        assert_eq!(states(&pool).into_iter().collect::<Vec<_>>(), [("live".to_owned(), 2)]);
        clear(&pool);
    }
    // Nothing leaked: both slots are free again.
    let told = create(&pool, 1000);
    assert_eq!(told.iter().filter(|told| told.code == 0).count(), 2);
}

#[test]
fn g08_who_waits_for_a_slot_gets_one_in_the_order_of_coming() {
    let pool = Pool::with("[pool]\nmax_sessions = 1\n[reaper]\ngrace = '200ms'\n");
    pool.script("first", "exec sleep 1000");
    let waiting = |n: u64| pool.status()["room"]["waiting"] == n;
    let (most, ()) = most_running(&pool, || {
        thread::scope(|scope| {
            let mut waiters = Vec::new();
            for n in 0..4_u64 {
                let name = format!("w{n}");
                let pool = &pool;
                waiters.push(scope.spawn(move || {
                    let script = "sleep 0.05";
                    pool.ctl(&["new", &name, "--wait-slot", "30s", "--", "sh", "-c", script]).expect(0)
                }));
                wait_until("it waits", PATIENCE, || waiting(n + 1));
            }
            pool.ok(&["kill", "first"]);
            waiters.into_iter().for_each(|waiter| drop(waiter.join().unwrap()));
        });
    });
    assert_eq!(most, 1);
    let created = pool.lines(&["events", "--kind", "session_created"]);
    let names: Vec<&Value> = created.iter().map(|event| &event["name"]).collect();
    assert_eq!(names, ["first", "w0", "w1", "w2", "w3"], "{created:#?}");
}

#[test]
fn g08_a_full_pool_refuses_and_a_limit_on_waiting_is_kept() {
    let pool = Pool::with("[pool]\nmax_sessions = 1\n");
    pool.script("first", "exec sleep 1000");
    let refused = pool.ctl(&["new", "--", "true"]).expect(5);
    assert!(refused.stderr.contains("max_sessions") || refused.stderr.contains("full"), "{refused:?}");
    let waited = pool.ctl(&["new", "--wait-slot", "300ms", "--", "true"]).expect(5);
    assert!(waited.stderr.contains("no slot came free within 300ms"), "{waited:?}");
    assert_eq!((slots(&pool), pool.lines(&["ls", "--all"]).len()), (1, 1), "nothing is left of either");
    wait_until("no client waits", PATIENCE, || pool.status()["room"]["waiting"] == 0);
}

#[test]
fn g08_who_waits_leaves_the_line_when_it_goes() {
    let pool = Pool::with("[pool]\nmax_sessions = 1\n[reaper]\ngrace = '200ms'\n");
    pool.script("first", "exec sleep 1000");
    let mut waiter = pool.poolctl();
    waiter.args(["new", "gone", "--wait-slot", "1m", "--", "sleep", "1000"]);
    let waiter = crate::harness::Talk::start(&mut waiter);
    wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
    drop(waiter.end());
    wait_until("no client waits", PATIENCE, || pool.status()["room"]["waiting"] == 0);
    pool.ok(&["kill", "first"]);
    pool.script("next", "exec sleep 1000");
    pool.ctl(&["show", "gone"]).expect(3);
}

#[test]
fn g07_nothing_starts_below_what_is_to_be_left_free_and_status_says_so() {
    let pool = Pool::with("");
    for setting in ["min_free_memory", "min_free_disk"] {
        pool.reload(&format!("[pool]\n{setting} = '90000GiB'\n"));
        let refused = pool.ctl(&["new", "--", "true"]).expect(5);
        let kept = format!("[pool] {setting} keeps 92160000");
        assert!(refused.stderr.contains(&kept), "{refused:?}");
        let told = pool.ctl(&["status"]).expect(1).stdout;
        let line = told.lines().find(|line| line.contains("no session is started now: "));
        assert!(line.is_some_and(|line| line.contains(&kept)), "{told}");
    }
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 0);
    pool.reload("");
    pool.ok(&["new", "--", "true"]);
}

#[test]
fn who_waits_for_a_slot_waits_for_memory_as_well() {
    let pool = Pool::with("[pool]\nmin_free_memory = '90000GiB'\n");
    let late = pool.ctl(&["new", "--wait-slot", "500ms", "--", "true"]).expect(5);
    assert!(late.stderr.contains("within 500ms") && late.stderr.contains("min_free_memory"), "{late:?}");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| pool.ctl(&["new", "web", "--wait-slot", "1m", "--", "sleep", "1000"]));
        wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
        pool.reload("");
        drop(waiter.join().unwrap().expect(0));
    });
    assert_eq!(pool.lifecycle("web"), "live");
}

#[test]
fn g08_a_waiter_outlives_poold() {
    let pool = Pool::with(&few_slots(1));
    pool.script("first", "exec sleep 1000");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            pool.ctl(&["--timeout", "40s", "new", "next", "--wait-slot", "30s", "--", "sleep", "1000"])
        });
        wait_until("it waits", PATIENCE, || pool.status()["room"]["waiting"] == 1);
        pool.restart_poold();
        wait_until("it waits again", PATIENCE, || pool.status()["room"]["waiting"] == 1);
        pool.ok(&["kill", "first"]);
        drop(waiter.join().unwrap().expect(0));
    });
    assert_eq!((pool.lifecycle("next").as_str(), slots(&pool)), ("live", 1));
    pool.ok(&["kill", "next"]);
    keeper(&pool, "k");
    assert_eq!(slots(&pool), 1);
}

#[test]
fn a_reset_that_finds_no_slot_has_emptied_nothing() {
    let pool = Pool::with(&few_slots(1));
    let id = keeper(&pool, "web");
    pool.ok(&["send", &id, "--wait", "done", "hello"]);
    pool.ok(&["park", &id]);
    let other = pool.script("other", "exec sleep 1000");
    let before = pool.ok(&["logs", &id]);
    assert!(before.contains("hello"), "{before}");
    pool.ctl(&["reset", &id]).expect(5);
    assert_eq!(pool.ok(&["logs", &id]), before);
    pool.ok(&["kill", &other]);
    pool.ok(&["reset", &id]);
    assert!(!pool.ok(&["logs", &id]).contains("hello"), "it is empty, and its program begins");
}
