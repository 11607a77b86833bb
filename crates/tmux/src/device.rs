//! The address of a tmux server, with the limits and the environment of calls to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of one call of tmux. A healthy server with a thousand panes answers in 60 ms; a server that
/// is silent for this long is stopped, or spins without file descriptors.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Time after which a server that was slow to take a command without a client is tested again.
const RETEST: Duration = Duration::from_secs(60);

/// Output limit of one call, in bytes: 50,000 lines of history with 200 columns take 10 MiB, and more with colours.
pub const OUTPUT_CAP: usize = 32 << 20;

/// One tmux server, addressed by its socket.
#[derive(Debug, Clone)]
pub struct Device {
    /// Path of the tmux binary.
    pub binary: PathBuf,
    /// Path of the server's socket.
    pub socket: PathBuf,
    /// Configuration file of a new server; `None` for no configuration at all.
    pub config: Option<PathBuf>,
    /// True if creating a session may start the server. Nothing else ever starts it.
    pub start_server: bool,
    /// True for the pool's own server: only there is the hidden session created, and left out of every
    /// listing.
    pub own: bool,
    /// Time limit of one call.
    pub deadline: Duration,
    /// Output limit of one call, in bytes.
    pub output_cap: usize,
    /// Knowledge of whether the server takes commands without a client.
    pub direct: Direct,
    /// Knowledge that the binary is new enough.
    pub supported: Supported,
    /// Environment variables of each client that cannot become a server; they identify a client that
    /// outlives its owner.
    pub mark: Vec<(&'static str, OsString)>,
}

impl Device {
    /// Returns a device with the default limits, without configuration, that never starts a server.
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
            supported: Supported::default(),
            mark: Vec::new(),
        }
    }

    /// Returns the words before the command: `-u`, because without it tmux replaces tabs and non-ASCII
    /// characters in its output where the locale is not UTF-8; `-N` unless the server may be started.
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

/// Shared knowledge, among all clones of a device, of whether the server at the socket takes commands
/// without a client.
#[derive(Debug, Clone, Default)]
pub struct Direct(Arc<Mutex<DirectSupport>>);

#[derive(Debug, Clone, Copy, Default)]
enum DirectSupport {
    #[default]
    Unknown,
    /// Result of the self-test on the server with this pid.
    Checked(i32, bool),
    /// The server with this pid was slow: it is tested again at this time.
    Slow(i32, Instant),
    Never,
}

impl Direct {
    /// Returns the setting that runs a client for each call, whatever the server supports.
    pub fn never() -> Self {
        Self(Arc::new(Mutex::new(DirectSupport::Never)))
    }

    pub(crate) fn works_with(&self, server: i32) -> Option<bool> {
        match *self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            DirectSupport::Checked(known, works) if known == server => Some(works),
            DirectSupport::Slow(known, until) if known == server && Instant::now() < until => Some(false),
            DirectSupport::Checked(..) | DirectSupport::Slow(..) | DirectSupport::Unknown => None,
            DirectSupport::Never => Some(false),
        }
    }

    /// Stores the result of a self-test; `None` if it was not answered in time.
    pub(crate) fn learn(&self, server: i32, works: Option<bool>) {
        let support = match works {
            Some(works) => DirectSupport::Checked(server, works),
            None => DirectSupport::Slow(server, Instant::now() + RETEST),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = support;
    }
}

/// Shared knowledge, among all clones of a device, that its binary is new enough. It stays valid for the life of the
/// process: a binary is only ever replaced by a newer one.
#[derive(Debug, Clone, Default)]
pub struct Supported(Arc<AtomicBool>);

impl Supported {
    pub(crate) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn learn(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Environment variables that tmux itself needs, or a window that a user splits off by hand. No others
/// reach a server: everything that can connect to its socket can read its environment for as long as it
/// lives. The programs of sessions get theirs from the job file.
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
    // Variables that tmux copies into a session from the client that creates it.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "KRB5CCNAME",
    "SSH_ASKPASS",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "SSH_CONNECTION",
    // A tmux built with systemd support asks the user's service manager for a scope.
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// True if a variable may reach tmux.
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
