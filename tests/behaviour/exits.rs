//! Exact exit codes of programs, for every code and signal.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use crate::harness::Pool;

const ROOMY: &str = "[pool]\nmax_sessions = 400\n";

/// Runs each job in a session of its own, several at a time.
fn run_each(pool: &Pool, jobs: &[(String, String, i32)]) {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some((name, script, code)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let run = pool.ctl(&["run", name, "--", "sh", "-c", script]);
            if run.code != *code || run.text() != format!("I am {name}") {
                failed.lock().unwrap().push(run);
            }
        }
    };
    thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{} of {}: {failed:#?}", failed.len(), jobs.len());
}

fn ends(pool: &Pool) -> Vec<(String, Value)> {
    let listed = pool.lines(&["ls", "--all"]);
    listed.iter().map(|s| (s["name"].as_str().unwrap().to_owned(), s["exit"].clone())).collect()
}

/// The bounds of the byte, and the codes that shells, `timeout` and `env` give a meaning.
#[test]
fn every_exit_code_comes_through() {
    let pool = Pool::with(ROOMY);
    let job = |code: i32| (format!("code-{code}"), format!("echo I am code-{code}; exit {code}"), code);
    let jobs: Vec<_> = (0..4).chain([64, 77, 78]).chain(124..140).chain([143, 254, 255]).map(job).collect();
    run_each(&pool, &jobs);
    let ends = ends(&pool);
    assert_eq!(ends.len(), jobs.len());
    for (name, exit) in ends {
        assert_eq!(name, format!("code-{}", exit["code"]));
        assert!(exit["signal"].is_null(), "{name}: {exit}");
    }
    assert_eq!(pool.show("code-77")["exit"]["code"], 77);
    pool.ctl(&["wait", "code-77", "--for", "exit"]).expect(77);
    assert_eq!(pool.status()["slots"]["used"], 0);
}

#[test]
fn every_fatal_signal_comes_through() {
    // All signals except those that by default stop, continue or are ignored; three of the real-time ones.
    let harmless = [17, 18, 19, 20, 21, 22, 23, 28];
    let signals = (1..=31).filter(|n| !harmless.contains(n)).chain([35, 50, 64]);
    let pool = Pool::with(ROOMY);
    let job = |n: i32| {
        (format!("signal-{n}"), format!("ulimit -c 0; echo I am signal-{n}; kill -{n} $$; sleep 5"), 128 + n)
    };
    let jobs: Vec<_> = signals.map(job).collect();
    run_each(&pool, &jobs);
    for (name, exit) in ends(&pool) {
        assert_eq!(name, format!("signal-{}", exit["signal"]));
        assert!(exit["code"].is_null(), "{name}: {exit}");
    }
    assert_eq!(pool.show("signal-9")["exit"]["signal"], 9);
}

#[test]
fn a_program_that_is_not_there_is_said_to_be_missing() {
    let pool = Pool::new();
    let missing = pool.ctl(&["--json", "new", "web", "--", "surely-not-a-program"]).expect(1);
    assert!(missing.error()["message"].as_str().unwrap().contains("surely-not-a-program"), "{missing:?}");
    let shown = pool.show("web");
    assert_eq!((&shown["lifecycle"], &shown["reason"]), (&"failed".into(), &"exec_failed".into()));
    assert_eq!(shown["exit"]["code"], 127);
    pool.ctl(&["run", "again", "--", "/etc/passwd"]).expect(126);
    pool.ok(&["rm", "web"]);
}
