//! One supervised daemon: how it is started, and when again.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::detach::spawn_detached;
use process::logfile;
use protocol::socket::Paths;

use crate::up::programs;

/// The daemons in the order in which they are started; they are stopped in the other.
pub(crate) const NAMES: [&str; 3] = ["poold", "tmux-watch", "reaper"];

/// The shortest time from an end to the next start, and the longest.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Who lived this long starts with the shortest pause again.
const PROVED: Duration = Duration::from_secs(60);

/// The pause before the next start: doubles while starts fail.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// As if it had never failed.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self { next: SHORTEST }
    }

    /// The pause after one that lived this long.
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        let pause = if lived >= PROVED { SHORTEST } else { self.next };
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

/// Starts a daemon in a session of its own, its output in its log.
///
/// # Errors
/// It cannot be started, or its log not be made.
pub(crate) fn start(paths: &Paths, name: &str) -> io::Result<Child> {
    let log = logfile::open(&paths.log(name))?;
    let mut command = Command::new(programs::this());
    programs::environment(&mut command, paths);
    command.arg("become").arg(programs::find(name)).current_dir("/");
    command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
    spawn_detached(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_half_a_minute_and_start_over() {
        let mut backoff = Backoff::new();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.after(Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(backoff.after(PROVED).as_secs(), 1);
        assert_eq!(backoff.after(Duration::ZERO).as_secs(), 2);
    }
}
