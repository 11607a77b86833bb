//! Starts a program that does not outlive the process that started it.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::signal::SigSet;

/// Starts a program in a process group of its own, out of reach of terminal keys, and with no signal blocked.
/// On Linux it is killed when the thread that called this ends, so that thread should live as long as the
/// process; the program's own children are not killed. macOS has no equivalent.
///
/// # Errors
/// The program cannot be started, or the parent has ended in between.
#[expect(unsafe_code, reason = "the parent-death signal must be set between fork and exec")]
pub fn spawn_dependent(mut command: Command) -> io::Result<Child> {
    command.process_group(0);
    let unblocked = SigSet::empty();
    let parent = nix::unistd::getpid();
    let before_exec = move || {
        unblocked.thread_set_mask()?;
        set_parent_death_signal()?;
        // The parent may have ended before the signal was set.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: runs between fork and exec; it makes three system calls, all async-signal-safe, and neither
    // allocates nor takes a lock (an io::Error made from an errno is a plain number).
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

#[cfg(target_os = "linux")]
fn set_parent_death_signal() -> Result<(), Errno> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
}

#[cfg(not(target_os = "linux"))]
fn set_parent_death_signal() -> Result<(), Errno> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::thread;

    use nix::sys::signal::Signal;

    use super::*;
    use crate::identity;

    #[test]
    fn it_leads_a_group_and_receives_every_signal() {
        let child = thread::spawn(|| {
            SigSet::all().thread_block().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", "kill -TERM $$; exit 3"]);
            let mut child = spawn_dependent(command).unwrap();
            child.wait().unwrap()
        });
        let status = child.join().unwrap();
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(Signal::SIGTERM as i32),
            "{status}"
        );
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped());
        let mut child = spawn_dependent(command).unwrap();
        let process = identity::read(child.id()).unwrap().unwrap();
        assert_eq!(process.pgid, child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn it_ends_with_the_thread_that_started_it() {
        let starter = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("1000");
            spawn_dependent(command).unwrap()
        });
        let mut child = starter.join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGKILL as i32));
    }
}
