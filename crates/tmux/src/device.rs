//! Which tmux server is meant, and how it is spoken to.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::direct::Direct;

/// How long one call of tmux may take. A healthy server with a thousand panes answers in 60 ms; a
/// server that is silent for this long is stopped, or spins without file descriptors.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// The most that one call may write, in bytes: 50,000 lines of history take 4 MiB.
pub const OUTPUT_CAP: usize = 8 << 20;

/// One tmux server, addressed by its socket.
#[derive(Debug, Clone)]
pub struct Device {
    /// The tmux binary.
    pub binary: PathBuf,
    /// The server's socket.
    pub socket: PathBuf,
    /// The configuration that a new server reads; none at all where this is `None`.
    pub config: Option<PathBuf>,
    /// Whether creating a session may start the server. Nothing else ever does.
    pub start_server: bool,
    /// Whether it is the pool's own server: only there the hidden session is made, and left out of
    /// every listing.
    pub own: bool,
    /// How long one call may take.
    pub deadline: Duration,
    /// The most that one call may write, in bytes.
    pub output_cap: usize,
    /// How its server takes commands.
    pub direct: Direct,
    /// Set in the environment of each client that cannot become a server, so that one that outlives its owner is known
    /// for what it is.
    pub mark: Vec<(&'static str, OsString)>,
}

impl Device {
    /// A device with the usual limits, no configuration, and that never starts a server.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, socket: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            socket: socket.into(),
            config: None,
            start_server: false,
            own: false,
            deadline: DEADLINE,
            output_cap: OUTPUT_CAP,
            direct: Direct::default(),
            mark: Vec::new(),
        }
    }

    /// The words before the command: `-u`, because without it tmux replaces tabs and all that is
    /// not ASCII in its output where the locale is not UTF-8; `-N` unless the server may be started.
    pub(crate) fn options(&self, may_start: bool) -> Vec<OsString> {
        let config = self.config.as_deref().unwrap_or(Path::new("/dev/null"));
        let mut words: Vec<OsString> = vec!["-u".into(), "-S".into(), self.socket.clone().into()];
        words.extend(["-f".into(), config.into()]);
        if !may_start {
            words.push("-N".into());
        }
        words
    }
}

/// What tmux itself needs of the environment, and what a window needs that somebody splits off by hand. Nothing else
/// reaches a server: what is in its environment can be read by everything that reaches its socket, for as long as it
/// lives. The programs of sessions have theirs from elsewhere.
const PASSED: [&str; 26] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TERM",
    "COLORTERM",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TMPDIR",
    "LOCPATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    // What tmux takes over into a session from whoever creates it.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "KRB5CCNAME",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_CONNECTION",
    // A tmux that is built for systemd asks its user manager for a scope.
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// Whether a variable may reach tmux.
pub(crate) fn is_passed(variable: &OsStr) -> bool {
    let name = variable.as_bytes();
    PASSED.iter().any(|passed| passed.as_bytes() == name) || name.starts_with(b"LC_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tmux_does_not_need_does_not_reach_it() {
        for name in
            ["TMUX", "TMUX_PANE", "NOTIFY_SOCKET", "POOL_SESSION", "ANTHROPIC_API_KEY", "LCX", "PATHX"]
        {
            assert!(!is_passed(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "HOME", "LC_ALL", "LANG", "TERM"] {
            assert!(is_passed(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_server_is_never_started_by_accident() {
        let device = Device::new("tmux", "/s");
        assert!(device.options(false).contains(&"-N".into()));
        assert!(!device.options(true).contains(&"-N".into()));
    }
}
