//! Child processes that do not outlive the benchmark.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::ProcId;

use crate::interrupt;

/// Time for a server to listen.
const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(5);

/// A child process, killed on drop.
#[derive(Debug)]
pub(crate) struct Spawned(Child);

impl Spawned {
    /// Starts it with pipes for input and output. A Ctrl-C at the terminal does not reach it.
    pub(crate) fn piped(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn();
        child.map(Self).with_context(|| named(command))
    }

    /// Starts it with its output in a file.
    pub(crate) fn logged(command: &mut Command, log: &Path) -> Result<Self> {
        let output = File::options().create(true).append(true).open(log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).process_group(0);
        command.spawn().map(Self).with_context(|| named(command))
    }

    /// Starts a server with its output in a file, and waits until it listens at its socket.
    pub(crate) fn server(command: &mut Command, socket: &Path, log: &Path) -> Result<Self> {
        let mut server = Self::logged(command, log)?;
        let deadline = Instant::now() + PATIENCE;
        while UnixStream::connect(socket).is_err() {
            if let Some(status) = server.0.try_wait()? {
                bail!("{}: {status}: {}", named(command), last_line(log));
            }
            ensure!(Instant::now() < deadline, "{} does not listen", named(command));
            interrupt::sleep(TICK)?;
        }
        Ok(server)
    }

    /// Takes its output and input; `None` the second time.
    pub(crate) fn pipes(&mut self) -> Option<(OwnedFd, OwnedFd)> {
        Some((self.0.stdout.take()?.into(), self.0.stdin.take()?.into()))
    }

    /// Returns the identity of the process.
    pub(crate) fn id(&self) -> Result<ProcId> {
        process::identity::identify(self.0.id())?.context("a process that has ended")
    }

    /// Kills it (SIGKILL) and waits for its exit.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have exited by itself; other failures have no remedy here.
        drop(self.kill());
    }
}

/// Returns the program's version output; `None` if the program is missing.
pub(crate) fn version(program: impl AsRef<OsStr>, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words: Vec<&str> = text.lines().next().unwrap_or_default().split_whitespace().collect();
    let digits = |word: &&&str| word.trim_start_matches("v=").starts_with(|c: char| c.is_ascii_digit());
    Some(words.iter().find(digits).map_or("?", |word| word.trim_start_matches("v=")).to_owned())
}

fn named(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

fn last_line(log: &Path) -> String {
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| file.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    read.ok().and(text.trim_end().lines().last()).unwrap_or("no output").to_owned()
}
