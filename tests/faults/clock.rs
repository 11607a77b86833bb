//! The wall clock is set while the pool holds records of every kind that has a time.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::harness::{PATIENCE, Pool, Program, Talk, alive, wait_until};

const DAYS: i64 = 48 * 3_600_000;

/// A pool whose daemon reads a clock that the test sets.
struct Clocked(Pool);

impl Clocked {
    fn new() -> Self {
        let clocked = Self(Pool::bare("[reaper]\ninterval = \"100ms\"\n"));
        clocked.start();
        clocked.0.start(Program::Watch);
        clocked.0.start(Program::Reaper);
        clocked.0.await_complete();
        clocked
    }

    fn start(&self) {
        let mut command = self.0.daemon(Program::Poold);
        command.env("POOL_CLOCK", self.0.path("clock"));
        self.0.start_as(Program::Poold, command);
        self.0.await_poold();
    }

    fn set(&self, by: i64) {
        let (new, clock) = (self.0.path("clock.new"), self.0.path("clock"));
        fs::write(&new, by.to_string()).unwrap();
        fs::rename(new, clock).unwrap();
    }

    fn restart(&self, signal: Signal) {
        self.0.end(Program::Poold, signal);
        self.start();
        self.0.await_complete();
    }
}

#[test]
fn a_clock_that_is_set_ends_deletes_expires_and_forgets_nothing() {
    let clocked = Clocked::new();
    let pool = &clocked.0;
    let long = pool.ok(&["new", "long", "--max-runtime", "1h", "--", "sleep", "1000"]);
    let (_, pid) = pool.pane_pids(&long);
    let over = pool.ok(&["new", "over", "--ttl", "1h", "--", "true"]);
    pool.await_lifecycle(&over, "stopped");
    let send = |flags: &[&str]| pool.ok(&[&["send", "long", "text"], flags].concat());
    let waits = send(&["--kind", "job", "--ttl", "1h"]);
    let keyed = send(&["--kind", "done", "--key", "once"]);
    pool.ok(&["work", "long", "--kind", "done", "--until-empty", "--", "true"]);
    let named = ["new", "named", "--op-id", "op1", "--", "sleep", "1000"];
    let made = pool.ok(&named);
    for name in ["held", "locked"] {
        pool.script(name, "exec sleep 1000");
    }
    let claimed = pool.ok(&["send", "held", "--kind", "slow", "text"]);
    let _worker = Talk::start(pool.poolctl().args(["work", "held", "--kind", "slow", "--", "sleep", "1000"]));
    let mut holder = Talk::start(pool.poolctl().args(["lock", "locked", "--", "sleep", "1000"]));
    let claim = || {
        let message = pool.json(&["queue", "show", "held", &claimed]);
        (message["state"].clone(), message["attempts"].clone(), message["claim"]["token"].clone())
    };
    let lock = || pool.show("locked")["lock"]["token"].clone();
    wait_until("both are held", PATIENCE, || claim().0 == "claimed" && lock() != Value::Null);
    let held = (claim(), lock());
    let mut all_is_there = |when: &str| {
        // Real elapsed time still counts: short limits run out meanwhile.
        let name = when.replace(' ', "-");
        let short = pool.ok(&["new", &name, "--max-runtime", "300ms", "--", "sleep", "1000"]);
        let expires = send(&["--kind", "brief", "--ttl", "300ms"]);
        pool.await_lifecycle(&short, "stopped");
        let state = |id: &str| pool.json(&["queue", "show", "long", id])["state"].clone();
        wait_until("it expires", PATIENCE, || state(&expires) == "expired");
        assert!(alive(pid), "{when}");
        assert_eq!(
            (pool.lifecycle(&long), pool.lifecycle(&over)),
            ("live".into(), "stopped".into()),
            "{when}"
        );
        assert_eq!(state(&waits), "queued", "{when}");
        assert_eq!(send(&["--kind", "done", "--key", "once"]), keyed, "{when}");
        assert_eq!(pool.ok(&named), made, "{when}");
        assert_eq!(((claim(), lock()), holder.has_ended()), (held.clone(), false), "{when}");
    };
    clocked.set(DAYS);
    all_is_there("set forward");
    // At start `poold` removes everything whose retention has ended.
    clocked.restart(Signal::SIGKILL);
    all_is_there("killed");
    clocked.set(-DAYS);
    all_is_there("set back");
    pool.end(Program::Poold, Signal::SIGTERM);
    clocked.set(3 * DAYS);
    clocked.start();
    pool.await_complete();
    all_is_there("set while poold was stopped");
}
