//! A pool for a benchmark, in a temporary directory.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use protocol::ProcId;
use tempfile::TempDir;

use crate::{interrupt, remains, report};

/// Limit of open files here and in child processes: a thousand sessions need more than a thousand.
pub(crate) const OPEN_FILES: u64 = 65_536;
/// Name of the pool.
pub(crate) const NAME: &str = "bench";

/// A pool with its directory.
#[derive(Debug)]
pub(crate) struct Pool {
    bin_dir: PathBuf,
    dir: TempDir,
}

impl Pool {
    /// Creates a stopped pool below `parent` with this many slots and additional configuration. A socket's path must be
    /// short, and TMPDIR may be long: most are in `/tmp` itself.
    pub(crate) fn new(bin_dir: &Path, parent: &Path, sessions: usize, config: &str) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("pool-bench.").tempdir_in(parent)?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700))?;
        let config = format!("[pool]\nmax_sessions = {}\n{config}", sessions + 1);
        let path = dir.path().join("config.toml");
        fs::write(&path, config)?;
        // A file that others can write is refused.
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self { bin_dir: bin_dir.to_owned(), dir })
    }

    /// Starts the daemons.
    pub(crate) fn up(&self) -> Result<()> {
        self.poolctl(&["up"]).map(drop)
    }

    /// Stops the daemons; the sessions live on.
    pub(crate) fn down(&self) -> Result<()> {
        self.poolctl(&["down"]).map(drop)
    }

    /// Starts the daemons, runs `measure`, and ends everything, whatever the result.
    pub(crate) fn while_up<T>(&self, measure: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let measured = self.up().and_then(|()| measure(self));
        report("cleaning up");
        let stopped = self.stop();
        let measured = measured?;
        stopped?;
        Ok(measured)
    }

    /// Creates this many sessions, and returns their names.
    pub(crate) fn create_all(&self, count: usize) -> Result<Vec<String>> {
        report(&format!("creating {count} sessions"));
        let names: Vec<String> = (0..count).map(|n| format!("bench-{n}")).collect();
        for name in &names {
            interrupt::check()?;
            self.create(name)?;
        }
        Ok(names)
    }

    /// Creates a session that waits for input.
    pub(crate) fn create(&self, name: &str) -> Result<()> {
        self.new_session(name, &["cat"])
    }

    /// Creates a session that runs this program.
    pub(crate) fn new_session(&self, name: &str, program: &[&str]) -> Result<()> {
        self.poolctl(&[&["--timeout", "60s", "new", name, "--"], program].concat()).map(drop)
    }

    /// Returns a command in the pool's environment; its program comes from the pool's directory if it
    /// exists there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let own = self.bin_dir.join(program);
        let mut command = Command::new(if own.exists() { own.as_os_str() } else { OsStr::new(program) });
        command
            .env("POOL_NAME", NAME)
            .env("POOL_STATE_DIR", self.state())
            .env("POOL_CONFIG", self.dir.path().join("config.toml"))
            .env_remove("POOL_SOCKET")
            .env_remove("TMUX")
            .stdin(Stdio::null());
        command
    }

    /// Returns a `tmux` command for the pool's server.
    pub(crate) fn tmux(&self) -> Command {
        let mut command = self.command("tmux");
        command.arg("-S").arg(self.tmux_socket());
        command
    }

    /// Path of its tmux server's socket.
    pub(crate) fn tmux_socket(&self) -> PathBuf {
        self.state().join("run/tmux.sock")
    }

    /// Path of its daemon's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("run/poold.sock")
    }

    /// Directory of the pool, with everything it owns.
    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// State directory.
    pub(crate) fn state(&self) -> PathBuf {
        self.dir().join("state")
    }

    fn poolctl(&self, arguments: &[&str]) -> Result<Output> {
        let output = self.command("poolctl").args(arguments).output().context("poolctl")?;
        if !output.status.success() {
            bail!("poolctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(output)
    }

    /// Ends the sessions, the daemons and the tmux server with everything in it. The directory is removed
    /// on drop.
    fn stop(&self) -> Result<()> {
        let processes = self.processes();
        let down = self.poolctl(&["--timeout", "120s", "down", "--stop-sessions"]);
        // Fails where `poold` has ended its empty server, as it usually has; what is left is ended below.
        self.tmux().arg("kill-server").stderr(Stdio::null()).status().context("tmux kill-server")?;
        remains::end(&processes?)?;
        down.map(drop)
    }

    /// The tmux server and the processes of its panes.
    fn processes(&self) -> Result<BTreeSet<ProcId>> {
        processes(self.tmux())
    }
}

/// Returns the server of this `tmux` command, and the processes of its panes.
pub(crate) fn processes(mut tmux: Command) -> Result<BTreeSet<ProcId>> {
    let output =
        tmux.args(["list-panes", "-a", "-F", "#{pid} #{pane_pid}"]).stdout(Stdio::piped()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let pids: BTreeSet<u32> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let mut processes = BTreeSet::new();
    for pid in pids {
        processes.extend(process::identity::identify(pid)?);
    }
    Ok(processes)
}
