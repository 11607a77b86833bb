//! How a process is doing: what tells one that hangs from one that is busy or short of files.

use std::io;
use std::time::Duration;

use protocol::ids::ProcId;

use crate::identity::State;
use crate::platform;

/// The figures of a living process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vitals {
    /// [`State::Running`] or [`State::Stopped`].
    pub state: State,
    /// Time on a processor so far, user and system, of all its threads; in steps of 10 ms on Linux.
    pub cpu: Duration,
    /// How many descriptors it has open; `None` where that is not told, as of another user's.
    pub open_files: Option<u64>,
    /// Its own soft limit of them, [`u64::MAX`] for unlimited; always `None` on macOS.
    pub open_files_max: Option<u64>,
}

/// The figures of this very process; `None` where it has ended.
///
/// # Errors
/// Where the operating system refuses to say even what state it is in.
pub fn vitals(id: ProcId) -> io::Result<Option<Vitals>> {
    platform::vitals(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use nix::sys::signal::Signal;

    use super::*;
    use crate::handle::Handle;
    use crate::identity::{identify, me};
    use crate::testing::{Running, wait_until};

    #[test]
    fn a_stopped_process_lives_and_an_ended_one_has_none() {
        let mut child = Running::start(Command::new("sleep").arg("60"));
        let id = identify(child.id()).unwrap().unwrap();
        let handle = Handle::open(id).unwrap().unwrap();
        let state = || vitals(id).unwrap().map(|vitals| vitals.state);
        assert_eq!(state(), Some(State::Running));
        handle.signal(Signal::SIGSTOP).unwrap();
        wait_until("its stop", || state() == Some(State::Stopped));
        assert_eq!(vitals(ProcId { start: id.start + 1, ..id }).unwrap(), None, "an impostor");
        handle.signal(Signal::SIGKILL).unwrap();
        wait_until("its end", || state().is_none());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(vitals(id).unwrap(), None);
    }

    #[test]
    fn time_passes_while_one_computes() {
        let me = me().unwrap();
        let cpu = || vitals(me).unwrap().unwrap().cpu;
        let before = cpu();
        wait_until("time on the processor", || cpu() > before);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn descriptors_are_counted_and_their_limit_is_the_process_s_own() {
        let script = "ulimit -Sn 77; exec 5</dev/null 6</dev/null; echo; exec sleep 60";
        let mut command = Command::new("sh");
        let mut child = Running::start(command.args(["-c", script]).stdout(std::process::Stdio::piped()));
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let id = identify(child.id()).unwrap().unwrap();
        let found = vitals(id).unwrap().unwrap();
        let listed = std::fs::read_dir(format!("/proc/{}/fd", id.pid)).unwrap().count() as u64;
        assert_eq!((found.open_files, found.open_files_max), (Some(listed), Some(77)));
        assert!(listed >= 5, "{listed}");
    }
}
