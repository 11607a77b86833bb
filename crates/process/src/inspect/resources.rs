//! Resource use of a process: distinguishes a hung process from a busy one and from one out of descriptors.

use std::io;

use protocol::ProcId;

use crate::platform;

pub use crate::info::Resources;

/// Returns the resource use of this process; `None` if it has ended.
///
/// # Errors
/// Not even the run state can be read.
pub fn resources(id: ProcId) -> io::Result<Option<Resources>> {
    platform::resources(id)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use nix::sys::signal::Signal;

    use super::*;
    use crate::handle::Handle;
    use crate::identity::{State, identify, me};
    use crate::testing::{Running, wait_until};

    #[test]
    fn a_stopped_process_lives_and_an_ended_one_has_none() {
        let mut child = Running::start(Command::new("sleep").arg("60"));
        let id = identify(child.id()).unwrap().unwrap();
        let handle = Handle::open(id).unwrap().unwrap();
        let state = || resources(id).unwrap().map(|resources| resources.state);
        assert_eq!(state(), Some(State::Running));
        handle.signal(Signal::SIGSTOP).unwrap();
        wait_until("its stop", || state() == Some(State::Stopped));
        assert_eq!(resources(ProcId { start: id.start + 1, ..id }).unwrap(), None, "another start time");
        handle.signal(Signal::SIGKILL).unwrap();
        wait_until("its end", || state().is_none());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(resources(id).unwrap(), None);
    }

    #[test]
    fn cpu_time_grows_while_the_process_computes() {
        let me = me().unwrap();
        let cpu = || resources(me).unwrap().unwrap().cpu;
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
        let listed = || std::fs::read_dir(format!("/proc/{}/fd", id.pid)).unwrap().count() as u64;
        // Meanwhile `sleep` opens and closes its libraries.
        wait_until("both counts", || {
            let (found, listed) = (resources(id).unwrap().unwrap(), listed());
            assert_eq!(found.open_files_max, Some(77));
            listed >= 5 && found.open_files == Some(listed)
        });
    }
}
