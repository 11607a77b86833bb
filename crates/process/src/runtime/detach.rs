//! Starts a program that outlives the caller's terminal.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::runtime::descriptors;

/// Starts a program in a session of its own, without a terminal and with `/dev/null` as standard input. The
/// caller sets its output, the only files that it inherits.
#[expect(unsafe_code, reason = "setsid is called between fork and exec")]
pub fn spawn_detached(mut command: Command) -> io::Result<Child> {
    descriptors::keep_from_children();
    command.stdin(Stdio::null());
    // SAFETY: setsid is async-signal-safe and nothing is allocated on success; an Errno converts
    // to an io::Error without allocating either.
    unsafe { command.pre_exec(|| nix::unistd::setsid().map(drop).map_err(io::Error::from)) };
    command.spawn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity;

    #[test]
    fn it_leads_a_session_without_a_terminal() {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; test -z \"$line\" && sleep 60"]);
        let mut child = spawn_detached(command).unwrap();
        let process = identity::read(child.id()).unwrap().unwrap();
        assert_eq!((process.sid, process.pgid, process.tpgid), (child.id(), child.id(), None));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
