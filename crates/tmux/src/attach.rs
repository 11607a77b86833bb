//! Command lines that attach a person's terminal. `poolctl` execs them.

use std::ffi::OsString;

use protocol::{OsBytes, TmuxSessionId};

use crate::command::CommandLine;
use crate::device::Device;

impl Device {
    /// Returns the command that attaches a terminal outside of this server. Starts no server, and lets tmux
    /// find out whether the terminal supports UTF-8.
    pub fn attach_command(&self, session: TmuxSessionId, read_only: bool) -> Vec<OsBytes> {
        let target = session.to_string();
        let mut words = vec!["attach-session", "-t", &target];
        if read_only {
            words.push("-r");
        }
        self.client(&CommandLine::default().then(words))
    }

    /// Returns the command that switches a client of this server, by its [`Client::name`](crate::act::Client::name), to
    /// the session. `switch-client -r` would make a read-only client writable again, so the flag is set first, by
    /// `refresh-client`.
    pub fn switch_command(&self, client: &str, session: TmuxSessionId, read_only: bool) -> Vec<OsBytes> {
        let target = session.to_string();
        let mut line = CommandLine::default();
        if read_only {
            line = line.then(["refresh-client", "-t", client, "-f", "read-only"]);
        }
        self.client(&line.then(["switch-client", "-c", client, "-t", &target]))
    }

    fn client(&self, line: &CommandLine) -> Vec<OsBytes> {
        let program: [OsString; 4] =
            [self.binary.clone().into(), "-N".into(), "-S".into(), self.socket.clone().into()];
        program.into_iter().chain(line.words().iter().cloned()).map(OsBytes::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_attached_by_its_id() {
        let device = Device::new("/usr/bin/tmux", "/run/pool tmux.sock");
        let words = |argv: Vec<OsBytes>| argv.iter().map(OsBytes::to_string_lossy).collect::<Vec<_>>();
        let attach = words(device.attach_command(TmuxSessionId(3), true));
        assert_eq!(
            attach,
            ["/usr/bin/tmux", "-N", "-S", "/run/pool tmux.sock", "attach-session", "-t", "$3", "-r"]
        );
        let switch = words(device.switch_command("/dev/pts/7", TmuxSessionId(3), true));
        let read_only = ["refresh-client", "-t", "/dev/pts/7", "-f", "read-only", ";"];
        assert_eq!(switch[4..10], read_only);
        assert_eq!(switch[10..], ["switch-client", "-c", "/dev/pts/7", "-t", "$3"]);
    }
}
