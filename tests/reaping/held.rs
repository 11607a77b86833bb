//! Shared helpers of the tests of locks, rules and workers: a lock held by a process of its own, events of
//! the journal.

use protocol::Token;
use serde_json::Value;

pub(super) use crate::faults::support::{lines_of, recorder};
use crate::harness::{Output, PATIENCE, Pool, Talk, wait_until};
pub(super) use crate::queue::support::events;

/// A lock held by a process of its own until its input ends.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) talk: Talk,
    /// Token from the command's environment.
    pub(super) token: String,
}

/// Waits for a lock, then prints its token and session.
pub(super) fn wants(pool: &Pool, session: &str, flags: &[&str]) -> Talk {
    let mut command = pool.poolctl();
    command.arg("lock").args(flags).arg(session).args(["--", "sh", "-c"]);
    Talk::start(command.arg("echo $POOL_LOCK_TOKEN $POOL_LOCK_SESSION; exec cat"))
}

/// Waits until the process has the lock.
#[track_caller]
pub(super) fn has(talk: Talk) -> Held {
    wait_until("it has the lock", PATIENCE, || !talk.lines().is_empty() || !talk.errors().is_empty());
    let lines = talk.lines();
    let told = lines.first().and_then(|line| line.split_once(' '));
    let (token, _) = told.unwrap_or_else(|| panic!("{lines:?} {}", talk.errors()));
    Held { token: token.to_owned(), talk }
}

#[track_caller]
pub(super) fn hold(pool: &Pool, session: &str, flags: &[&str]) -> Held {
    has(wants(pool, session, flags))
}

impl Held {
    pub(super) fn number(&self) -> Token {
        self.token.parse().unwrap()
    }

    /// Runs `poolctl` as the command under the lock would.
    #[must_use = "look at the output or assert how it ended"]
    pub(super) fn ctl(&self, pool: &Pool, args: &[&str]) -> Output {
        Output::of(
            pool.poolctl().env("POOL_LOCK_TOKEN", &self.token).args(["--timeout", "30s"]).args(args),
            b"",
        )
    }

    /// Lets the command end; returns the exit code of `poolctl`.
    #[track_caller]
    pub(super) fn release(mut self) -> Option<i32> {
        self.talk.hang_up();
        self.talk.await_end()
    }
}

/// Holder of a session's lock, as `show` prints it.
#[track_caller]
pub(super) fn lock(pool: &Pool, session: &str) -> Value {
    pool.show(session)["lock"].clone()
}

/// Waits until `wanted` clients wait for the lock.
#[track_caller]
pub(super) fn await_waiting(pool: &Pool, session: &str, wanted: u64) {
    wait_until(&format!("{wanted} wait for the lock"), PATIENCE, || lock(pool, session)["waiting"] == wanted);
}

/// Rule and action of each finding about a session, in order.
#[track_caller]
pub(super) fn found(pool: &Pool, session: &str) -> Vec<(String, String)> {
    let events = pool.lines(&["events", "--session", session, "--kind", "stale_found"]);
    let word = |event: &Value, key: &str| event[key].as_str().unwrap_or_default().to_owned();
    for event in &events {
        assert!(!word(event, "evidence").is_empty(), "{event}");
    }
    events.iter().map(|event| (word(event, "rule"), word(event, "action"))).collect()
}

/// Asserts by the journal that a session's lock is granted only while free, each time with a larger token;
/// returns the number of grants.
#[track_caller]
pub(super) fn one_at_a_time(pool: &Pool) -> usize {
    let mut open: std::collections::BTreeMap<String, String> = Default::default();
    let mut last: Option<Token> = None;
    let events = events(pool, &["lock_granted", "lock_released", "lock_revoked"]);
    for event in &events {
        let (session, token) = (event["session"].to_string(), event["token"].as_str().unwrap().to_owned());
        if event["kind"] == "lock_granted" {
            assert!(open.insert(session, token.clone()).is_none(), "given while it is held: {events:#?}");
            let number: Token = token.parse().unwrap();
            assert!(last.is_none_or(|last| last < number), "an old token: {events:#?}");
            last = Some(number);
        } else {
            assert_eq!(open.remove(&session), Some(token), "{events:#?}");
        }
    }
    events.iter().filter(|event| event["kind"] == "lock_granted").count()
}
