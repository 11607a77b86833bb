//! The floor: tmux itself, on a server of its own.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use protocol::ProcId;

use crate::pool::Pool;
use crate::{interrupt, remains};

/// Number of sessions created or removed by one command line.
const AT_A_TIME: usize = 50;
/// Program of each session.
pub(super) const PROGRAM: [&str; 2] = ["sleep", "100000"];

/// A tmux server outside of any pool.
pub(crate) struct Bare<'a> {
    pool: &'a Pool,
    socket: PathBuf,
}

impl<'a> Bare<'a> {
    /// Starts it with this many sessions.
    pub(crate) fn start(pool: &'a Pool, existing: usize) -> Result<Self> {
        let bare = Self { pool, socket: pool.dir().join("bare.sock") };
        // Like the pool's server, and for the same reason: the server runs before its first session.
        bare.run(&["start-server", ";", "set-option", "-s", "exit-empty", "off"])?;
        let names: Vec<String> = (0..existing).map(|n| format!("old-{n}")).collect();
        for names in names.chunks(AT_A_TIME) {
            interrupt::check()?;
            let lines = names.iter().flat_map(|name| new(name).into_iter().chain([";"]));
            bare.run(&lines.collect::<Vec<_>>())?;
        }
        Ok(bare)
    }

    /// Creates a session, as a script would.
    pub(super) fn make(&self, name: &str) -> Result<()> {
        self.run(&new(name))
    }

    /// Creates a session that runs this program; returns its first process.
    pub(crate) fn run_in(&self, name: &str, program: &[String]) -> Result<ProcId> {
        let mut command = self.command();
        command.args(["new-session", "-d", "-P", "-F", "#{pane_pid}", "-s", name, "--"]).args(program);
        let output = command.stdout(Stdio::piped()).output().context("tmux")?;
        let pid =
            String::from_utf8_lossy(&output.stdout).trim().parse().context("tmux reports no process")?;
        process::identity::identify(pid)?.context("the process has ended")
    }

    /// Removes sessions.
    pub(crate) fn remove(&self, names: &[String]) -> Result<()> {
        for names in names.chunks(AT_A_TIME) {
            let targets: Vec<String> = names.iter().map(|name| format!("={name}")).collect();
            let lines = targets.iter().flat_map(|target| ["kill-session", "-t", target, ";"]);
            self.run(&lines.collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Ends the server with everything in it.
    pub(crate) fn end(&self) -> Result<()> {
        let processes = self.processes();
        self.run(&["kill-server"])?;
        remains::end(&processes?)
    }

    fn processes(&self) -> Result<BTreeSet<ProcId>> {
        crate::pool::processes(self.command())
    }

    /// Returns a `tmux` command for this server.
    pub(crate) fn command(&self) -> Command {
        let mut command = self.pool.command("tmux");
        command.args(["-f", "/dev/null", "-S"]).arg(&self.socket).stdout(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Result<()> {
        let mut command = self.command();
        let status = command.args(words).status().context("tmux")?;
        ensure!(status.success(), "{command:?}: {status}");
        Ok(())
    }
}

fn new(name: &str) -> [&str; 7] {
    ["new-session", "-d", "-s", name, "--", PROGRAM[0], PROGRAM[1]]
}
