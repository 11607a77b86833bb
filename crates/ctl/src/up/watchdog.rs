//! Asks `poold` for its status at intervals, to detect that it hangs.

use std::path::Path;
use std::thread;
use std::time::Duration;

use process::runtime::awake::awake;
use protocol::millis;
use protocol::reply::Status;

use crate::Context;
use crate::daemon_absence::recovery;
use crate::up::health;

/// Unanswered requests in a row after which `poold` counts as hung.
const FAILURES: u32 = 3;

/// A finding of the watchdog.
pub(super) enum Finding {
    /// `poold` answered with its status.
    Answered(Box<Status>),
    /// `poold` has not answered for too long.
    Hung,
}

/// Calls `report` with each finding, until it returns false. `limit` is the time from the last answer to the
/// finding that `poold` hangs.
pub(super) fn run(context: &Context, limit: Duration, report: impl Fn(Finding) -> bool) {
    // Half of the limit is pauses, half of it waits for an answer.
    let pause = limit / (2 * FAILURES);
    let mut missed = 0;
    loop {
        thread::sleep(pause);
        let status = health::status_within(context, pause);
        let excused = status.is_some()
            || is_in_long_operation(&context.paths.run)
            || health::is_refused(context, pause);
        missed = if excused { 0 } else { missed + 1 };
        let finding = match status {
            Some(status) => Finding::Answered(Box::new(status)),
            None if missed >= FAILURES => {
                missed = 0;
                Finding::Hung
            }
            None => continue,
        };
        if !report(finding) {
            return;
        }
    }
}

/// True if a live `poold` recovers or compacts its database, within the time limit that it announced.
fn is_in_long_operation(run: &Path) -> bool {
    let lives = |pid: &str| {
        let found = pid.parse().ok().and_then(|pid| process::identity::identify(pid).ok().flatten());
        found.is_some()
    };
    let compacting = std::fs::read_to_string(run.join("compacting"));
    let compacts = compacting.is_ok_and(|text| {
        let mut words = text.split_whitespace();
        let within = |until: &str| until.parse().is_ok_and(|until| millis(awake()) < until);
        words.next().is_some_and(lives) && words.next().is_some_and(within)
    });
    recovery(run).is_some() || compacts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_operation_of_a_live_process_is_excused_within_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let me = std::process::id();
        assert!(!is_in_long_operation(dir.path()));
        write("compacting", format!("{me} {}\n", millis(awake()) + 60_000));
        assert!(is_in_long_operation(dir.path()));
        write("compacting", format!("{me} {}\n", millis(awake()) - 1));
        assert!(!is_in_long_operation(dir.path()), "the time is over");
        write("recovery", format!("{me} 30\n"));
        assert!(is_in_long_operation(dir.path()));
        write("recovery", "4294967294 30\n".to_owned());
        assert!(!is_in_long_operation(dir.path()), "the process has ended");
    }
}
