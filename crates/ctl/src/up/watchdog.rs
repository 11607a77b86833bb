//! Asks `poold` for its status at intervals: a daemon that hangs does not end by itself.

use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use crate::context::Context;
use crate::show::time;
use crate::up::health;
use crate::up::supervisor::Wake;

/// Unanswered requests in a row after which `poold` counts as hung.
const FAILURES: u32 = 3;

/// Asks for ever. `limit` is the time from the last answer to the verdict that it hangs.
pub(super) fn run(context: &Context, limit: Duration, wakes: &Sender<Wake>) {
    // Half of it are the pauses, half of it the waits for an answer.
    let pause = limit / (2 * FAILURES);
    let mut missed = 0;
    loop {
        thread::sleep(pause);
        let seen = health::look_within(context, pause);
        let excused = seen.is_some() || is_at_long_work(&context.paths.run);
        missed = if excused { 0 } else { missed + 1 };
        let wake = match seen {
            Some(status) => Wake::Seen(Box::new(status)),
            None if missed >= FAILURES => {
                missed = 0;
                Wake::Hung
            }
            None => continue,
        };
        if wakes.send(wake).is_err() {
            return;
        }
    }
}

/// Tells whether a living `poold` recovers or compacts its database, within the time limit that it gave for that.
fn is_at_long_work(run: &Path) -> bool {
    let lives = |pid: &str| {
        let found = pid.parse().ok().and_then(|pid| process::identity::identify(pid).ok().flatten());
        found.is_some()
    };
    let said = |name: &str| std::fs::read_to_string(run.join(name)).ok();
    let recovers = said("recovery").is_some_and(|text| text.split(' ').next().is_some_and(lives));
    let compacts = said("compacting").is_some_and(|text| {
        let mut words = text.split_whitespace();
        let within = |until: &str| until.parse().is_ok_and(|until: u64| time::now().0 < until);
        words.next().is_some_and(lives) && words.next().is_some_and(within)
    });
    recovers || compacts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_work_of_a_process_that_lives_is_excused_while_its_time_lasts() {
        let dir = tempfile::tempdir().unwrap();
        let say = |name: &str, text: String| std::fs::write(dir.path().join(name), text).unwrap();
        let me = std::process::id();
        assert!(!is_at_long_work(dir.path()));
        say("compacting", format!("{me} {}\n", time::now().0 + 60_000));
        assert!(is_at_long_work(dir.path()));
        say("compacting", format!("{me} {}\n", time::now().0 - 1));
        assert!(!is_at_long_work(dir.path()), "its time is over");
        say("recovery", format!("{me} 30\n"));
        assert!(is_at_long_work(dir.path()));
        say("recovery", "4294967294 30\n".to_owned());
        assert!(!is_at_long_work(dir.path()), "it has ended");
    }
}
