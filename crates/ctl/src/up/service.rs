//! The start of a supervised daemon, and the pause before its next start.

use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use process::handle::Handle;
use process::identity;
use process::runtime::detach::spawn_detached;
use process::runtime::logfile;
use protocol::{Backoff, Paths};

use crate::Error;
use crate::up::programs;

/// The daemons in the order of their start; they are stopped in reverse order.
pub(crate) const NAMES: [&str; 3] = ["poold", "tmux-watch", "reaper"];

/// The shortest and the longest pause between the end of a daemon and its next start.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(30);
/// Lifetime of a daemon after which the pauses begin with the shortest again.
const PROVED: Duration = Duration::from_secs(60);

/// The pauses between the starts of a daemon.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(SHORTEST, LONGEST)
}

/// The pause before the next start of a daemon that lived this long.
pub(crate) fn pause_after(backoff: &mut Backoff, lived: Duration) -> Duration {
    if lived >= PROVED {
        backoff.reset();
    }
    backoff.pause()
}

/// Starts a daemon in a session of its own, its output in its log.
pub(crate) fn start(paths: &Paths, name: &str) -> io::Result<Child> {
    let log = logfile::open(&paths.log(name))?;
    let mut command = Command::new(programs::this());
    programs::environment(&mut command, paths);
    command.arg("become").arg(programs::find(name)).current_dir("/");
    command.stdout(Stdio::from(log.try_clone()?)).stderr(Stdio::from(log));
    let program = command.get_program().to_owned();
    // After an upgrade this program may be at no path any more.
    spawn_detached(command)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", program.display())))
}

/// Opens a handle for a child of this process; `None` if it has ended.
pub(crate) fn open_child(pid: u32) -> Result<Option<Handle>, Error> {
    let failed = |error: &dyn std::fmt::Display| Error::failed(format!("cannot open pid {pid}: {error}"));
    let found = identity::read(pid).map_err(|error| failed(&error))?;
    match found.filter(|process| process.ppid == std::process::id()) {
        Some(process) => Handle::open(process.id).map_err(|error| failed(&error)),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_lived_long_starts_with_the_shortest_pause() {
        let mut backoff = backoff();
        let pauses: Vec<u64> = (0..3).map(|_| pause_after(&mut backoff, Duration::ZERO).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4]);
        assert_eq!(pause_after(&mut backoff, PROVED).as_secs(), 1);
        assert_eq!(pause_after(&mut backoff, Duration::ZERO).as_secs(), 2);
    }
}
