//! Starts a program that does not outlive its starter.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sys::signal::SigSet;

/// Starts it in a process group of its own, where the keys of a terminal do not reach it, and with no signal
/// held back. On Linux it is killed when the thread that starts it ends, so that should be one that lives as
/// long as the process; what it started itself is not. macOS has no means to that.
///
/// # Errors
/// Where it cannot be started, or the starter has ended meanwhile.
#[expect(unsafe_code, reason = "what ends with its parent must ask for that between fork and exec")]
pub fn spawn_dependent(mut command: Command) -> io::Result<Child> {
    command.process_group(0);
    let open = SigSet::empty();
    let parent = nix::unistd::getpid();
    let before_exec = move || {
        open.thread_set_mask()?;
        end_with_parent()?;
        // The parent may have ended before its end was asked to be told.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: runs between fork and exec; it makes three system calls, all async-signal-safe, and neither
    // allocates nor takes a lock (an io::Error made of an errno is a plain number).
    unsafe { command.pre_exec(before_exec) };
    command.spawn()
}

#[cfg(target_os = "linux")]
fn end_with_parent() -> Result<(), Errno> {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
}

#[cfg(not(target_os = "linux"))]
fn end_with_parent() -> Result<(), Errno> {
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
