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

/// Whether a variable must not reach tmux: it names another tmux, a supervisor's channel that is
/// ours alone, or a session of a pool that we ourselves may be running in.
pub(crate) fn is_private(variable: &OsStr) -> bool {
    let name = variable.as_bytes();
    let exact: [&[u8]; 3] = [b"TMUX", b"TMUX_PANE", b"NOTIFY_SOCKET"];
    let prefixes: [&[u8]; 3] = [b"LISTEN_", b"WATCHDOG_", b"POOL_"];
    exact.contains(&name) || prefixes.iter().any(|p| name.starts_with(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_variables_are_known() {
        for name in ["TMUX", "TMUX_PANE", "NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "POOL_SESSION"] {
            assert!(is_private(OsStr::new(name)), "{name}");
        }
        for name in ["TMUX_TMPDIR", "PATH", "SPOOL_DIR", "HOME"] {
            assert!(!is_private(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn a_server_is_never_started_by_accident() {
        let device = Device::new("tmux", "/s");
        assert!(device.options(false).contains(&"-N".into()));
        assert!(!device.options(true).contains(&"-N".into()));
    }
}
