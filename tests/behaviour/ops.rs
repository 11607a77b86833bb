//! Repeated requests: one operation id does one thing, once.

use std::fs;
use std::thread;

use crate::harness::Pool;

#[test]
fn o1_the_same_operation_gets_the_same_answer() {
    let pool = Pool::new();
    let new = ["--json", "new", "web", "--op-id", "n1", "--", "cat"];
    let first = pool.ctl(&new).expect(0).json();
    for _ in 0..2 {
        assert_eq!(pool.ctl(&new).expect(0).json()["id"], first["id"]);
    }
    pool.ctl(&["new", "other", "--op-id", "n1", "--", "cat"]).expect(4);
    pool.ctl(&["send", "web", "--op-id", "n1", "text"]).expect(4);
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1);
    pool.restart_poold();
    assert_eq!(pool.ctl(&new).expect(0).json()["id"], first["id"], "a restart forgets no operation");
    pool.await_complete();
    for _ in 0..2 {
        pool.ok(&["rename", "web", "--op-id", "r1", "site"]);
    }
    for _ in 0..2 {
        pool.ok(&["kill", "site", "--op-id", "k1"]);
    }
    for _ in 0..2 {
        pool.ok(&["rm", "site", "--op-id", "d1"]);
    }
    pool.ctl(&["rm", "site"]).expect(3);
}

#[test]
fn o1_a_repeat_while_the_first_runs_waits_for_it() {
    let pool = Pool::new();
    let ids: Vec<String> = thread::scope(|scope| {
        let repeats: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| pool.ok(&["new", "web", "--op-id", "same", "--", "sleep", "1000"])))
            .collect();
        repeats.into_iter().map(|repeat| repeat.join().unwrap()).collect()
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(pool.lines(&["ls", "--all"]).len(), 1);
    assert_eq!(pool.tmux_panes("x").len(), 1);
}

#[test]
fn reuse_gets_or_creates_by_workspace() {
    let pool = Pool::new();
    let args = ["new", "--workspace", "my-project-x", "--reuse", "--", "cat"];
    let first = pool.ok(&args);
    assert_eq!(pool.ok(&args), first);
    assert_eq!(pool.show("my-project-x")["workspace"], "my-project-x", "t20: hyphens are part of it");
    pool.ok(&["kill", &first]);
    assert_eq!(pool.ok(&args), first, "what does not run is started again");
    let shown = pool.show(&first);
    assert_eq!((&shown["lifecycle"], &shown["incarnations"]), (&"live".into(), &2.into()));
    let all: Vec<String> = thread::scope(|scope| {
        let made: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| pool.ok(&["new", "--workspace", "shared", "--reuse", "--", "cat"])))
            .collect();
        made.into_iter().map(|made| made.join().unwrap()).collect()
    });
    assert!(all.iter().all(|id| *id == all[0]), "{all:?}");
}

#[test]
fn t21_the_cap_holds_under_many_at_once() {
    let pool = Pool::with("[pool]\nmax_sessions = 3\n");
    let codes: Vec<i32> = thread::scope(|scope| {
        let made: Vec<_> = (0..8)
            .map(|n| {
                let pool = &pool;
                scope.spawn(move || pool.ctl(&["new", &format!("s{n}"), "--", "sleep", "1000"]).code)
            })
            .collect();
        made.into_iter().map(|made| made.join().unwrap()).collect()
    });
    assert_eq!(codes.iter().filter(|code| **code == 0).count(), 3, "{codes:?}");
    assert_eq!(codes.iter().filter(|code| **code == 5).count(), 5, "{codes:?}");
    let status = pool.status();
    assert_eq!((&status["slots"]["used"], &status["slots"]["max"]), (&3.into(), &3.into()));
    pool.reload("[pool]\nmax_sessions = 4\n");
    pool.ok(&["new", "more", "--", "sleep", "1000"]);
    fs::write(pool.path("config.toml"), "[pool]\nmax_session = 4\n").unwrap();
    assert!(pool.ctl(&["config", "reload"]).expect(2).stderr.contains("max_sessions"));
    let told = pool.status()["problems"].to_string();
    assert!(told.contains("would not start again") && told.contains("max_sessions"), "{told}");
}
