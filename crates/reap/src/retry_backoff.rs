//! Candidates held back for now: those with a running job, and those that failed recently.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use protocol::reap::{Candidate, CandidateKind, Rule};
use protocol::{Backoff, Tag};

/// Result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobResult {
    /// Everything is gone, and `poold` knows.
    Gone,
    /// No lease was given, or the connection failed: nothing speaks against another attempt.
    NoLease,
    /// The operator's command refused it. `poold` itself waits before it names it again.
    Refused,
    /// Something is left.
    Left,
}

/// First and longest pause after a failure; they double. A process that is blocked in the kernel takes its own time.
const FAILED_PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Pause after a refused lease: someone else holds the session for a while.
const NO_LEASE_PAUSE: Duration = Duration::from_secs(1);
/// Time after its pause at which a candidate that was not named again is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(300);

/// Back-off of each candidate.
#[derive(Debug, Default)]
pub(crate) struct RetryBackoff(HashMap<Tag, Entry>);

#[derive(Debug)]
struct Entry {
    /// The candidate of the last job.
    last: Candidate,
    /// Time of the next attempt; `None` while a job runs.
    retry_at: Option<Instant>,
    /// The pauses after failures.
    pauses: Backoff,
}

impl RetryBackoff {
    /// True if a job may start.
    pub(crate) fn may_begin(&self, candidate: &Candidate, now: Instant) -> bool {
        let is_due = |entry: &Entry| {
            entry.retry_at.is_some_and(|retry_at| retry_at <= now || is_another(&entry.last, candidate))
        };
        self.0.get(&candidate.tag).is_none_or(is_due)
    }

    /// Records the start of a job.
    pub(crate) fn started(&mut self, candidate: &Candidate) {
        let known = self.0.remove(&candidate.tag).filter(|entry| !is_another(&entry.last, candidate));
        let pauses = known.map_or_else(|| Backoff::new(FAILED_PAUSE.0, FAILED_PAUSE.1), |entry| entry.pauses);
        self.0.insert(candidate.tag, Entry { last: candidate.clone(), retry_at: None, pauses });
    }

    /// Records the result of a job.
    pub(crate) fn finished(&mut self, tag: Tag, result: JobResult, now: Instant) {
        self.0.retain(|_, entry| entry.retry_at.is_none_or(|retry_at| retry_at + FORGET_AFTER > now));
        let Some(entry) = self.0.get_mut(&tag) else { return };
        match result {
            JobResult::Gone | JobResult::Refused => drop(self.0.remove(&tag)),
            JobResult::NoLease => entry.retry_at = Some(now + NO_LEASE_PAUSE),
            JobResult::Left => entry.retry_at = Some(now + entry.pauses.pause()),
        }
    }
}

/// True if another end than that of the last job is asked for: by a user instead of a rule, or with another grace. The
/// failures of the last one say nothing about it. Only one end of an incarnation is asked for at a time.
fn is_another(last: &Candidate, now: &Candidate) -> bool {
    now.kind == CandidateKind::Requested && asked_end(now) != asked_end(last)
}

/// Returns what tells one end from another. The evidence of a rule has measurements that change by themselves.
fn asked_end(candidate: &Candidate) -> (CandidateKind, Option<Rule>, u64, Option<&str>) {
    let Candidate { kind, rule, grace_ms, evidence, .. } = candidate;
    (*kind, *rule, *grace_ms, rule.is_none().then_some(evidence.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::candidate;

    #[test]
    fn what_is_in_hand_is_not_begun_twice() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        let (one, other) = (candidate("one"), candidate("other"));
        assert!(backoff.may_begin(&one, now));
        backoff.started(&one);
        let later = now + Duration::from_secs(3600);
        assert!(!backoff.may_begin(&one, later));
        assert!(!backoff.may_begin(&Candidate { grace_ms: 0, ..one.clone() }, later));
        assert!(backoff.may_begin(&other, now));
        backoff.finished(one.tag, JobResult::Gone, now);
        assert!(backoff.may_begin(&one, now));
    }

    #[test]
    fn what_failed_waits_longer_each_time() {
        let (mut backoff, mut now) = (RetryBackoff::default(), Instant::now());
        let one = candidate("one");
        for pause in [5, 10, 20, 40, 60, 60] {
            backoff.started(&one);
            backoff.finished(one.tag, JobResult::Left, now);
            assert!(!backoff.may_begin(&one, now + Duration::from_secs(pause) - Duration::from_millis(1)));
            now += Duration::from_secs(pause);
            assert!(backoff.may_begin(&one, now), "{pause}");
        }
        backoff.started(&one);
        backoff.finished(one.tag, JobResult::NoLease, now);
        assert!(!backoff.may_begin(&one, now) && backoff.may_begin(&one, now + NO_LEASE_PAUSE));
    }

    #[test]
    fn another_end_that_is_asked_for_does_not_wait_for_what_failed_before() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        let killed = candidate("one");
        let by_rule = Candidate { rule: Some(Rule::RunTime), ..killed.clone() };
        for _ in 0..6 {
            backoff.started(&by_rule);
            backoff.finished(by_rule.tag, JobResult::Left, now);
        }
        assert!(!backoff.may_begin(&by_rule, now) && backoff.may_begin(&killed, now));
        let measured_anew = Candidate { evidence: "it ran for 61 s".to_owned(), ..by_rule };
        assert!(!backoff.may_begin(&measured_anew, now), "the same end");
        backoff.started(&killed);
        backoff.finished(killed.tag, JobResult::Left, now);
        assert!(!backoff.may_begin(&killed, now));
        assert!(backoff.may_begin(&killed, now + FAILED_PAUSE.0), "its pauses begin anew");
        assert!(backoff.may_begin(&Candidate { grace_ms: 0, ..killed.clone() }, now));
        // The remains of an incarnation may be named by several candidates at a time.
        let orphan = Candidate { kind: CandidateKind::Orphan, ..killed };
        assert!(!backoff.may_begin(&orphan, now));
    }

    #[test]
    fn what_was_refused_waits_for_poold_alone() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        let one = candidate("one");
        backoff.started(&one);
        backoff.finished(one.tag, JobResult::Refused, now);
        assert!(backoff.may_begin(&one, now));
    }

    #[test]
    fn nothing_is_remembered_for_ever() {
        let (mut backoff, now) = (RetryBackoff::default(), Instant::now());
        let (one, other) = (candidate("one"), candidate("other"));
        backoff.started(&one);
        backoff.finished(one.tag, JobResult::Left, now);
        backoff.started(&other);
        backoff.finished(other.tag, JobResult::Gone, now + FORGET_AFTER * 2);
        assert!(backoff.0.is_empty());
    }
}
