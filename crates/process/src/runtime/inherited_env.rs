//! Environment variables that programs started by the pool must not inherit: the surrounding tmux, the
//! supervisor's sockets, and the settings of another pool or session.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

const NAMES: [&[u8]; 3] = [b"TMUX", b"TMUX_PANE", b"NOTIFY_SOCKET"];
const PREFIXES: [&[u8]; 3] = [b"LISTEN_", b"WATCHDOG_", b"POOL_"];

/// True if a variable of this name must not be inherited.
fn is_scrubbed(name: &OsStr) -> bool {
    let name = name.as_bytes();
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes these variables from what the command inherits. Set the ones that it is meant to have afterwards.
pub fn scrub(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_scrubbed(name)) {
        command.env_remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_and_the_supervisors_only() {
        let leaks = [
            "TMUX",
            "TMUX_PANE",
            "NOTIFY_SOCKET",
            "LISTEN_FDS",
            "LISTEN_PID",
            "WATCHDOG_USEC",
            "POOL_SOCKET",
        ];
        assert!(leaks.iter().all(|name| is_scrubbed(OsStr::new(name))));
        let kept = ["TMUX_TMPDIR", "PATH", "TERM", "XPOOL_A", "POOL", "LISTEN", "NOTIFY_SOCKET_X"];
        assert!(!kept.iter().any(|name| is_scrubbed(OsStr::new(name))));
    }
}
