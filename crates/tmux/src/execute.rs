//! Runs one command line, directly or by a tmux client, with a deadline and an output cap, leaving no
//! orphan.

use std::future::pending;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};

use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use crate::command::{CommandLine, Reply, STDERR_CAP};
use crate::device::{Device, is_passed};
use crate::direct;
use crate::error::TmuxError;
use crate::trust;

impl Device {
    /// Runs one command line with `input` on its standard input, and waits for its exit. The end of its
    /// output is not waited for, because a stopped server holds that open. A reply only says that the line
    /// ended: success needs the end mark.
    ///
    /// No client is started if the server takes the line directly. Dropping the future ends the connection
    /// or the client. On Linux a client also ends with the thread that started it, so call this from a
    /// thread that lives as long as the program wants answers.
    ///
    /// # Errors
    /// [`TmuxError::Missing`], [`TmuxError::TooOld`], [`TmuxError::Spawn`], [`TmuxError::TimedOut`],
    /// [`TmuxError::TooLong`], [`TmuxError::ServerExited`], [`TmuxError::Output`], and
    /// [`TmuxError::Incomplete`] if waiting for a client failed.
    pub(crate) async fn run(
        &self,
        line: &CommandLine,
        input: Option<&[u8]>,
        may_start: bool,
    ) -> Result<Reply, TmuxError> {
        tracing::trace!(?line, "tmux");
        let deadline = Instant::now() + self.deadline;
        let late = |_elapsed| TmuxError::TimedOut(self.deadline);
        match timeout_at(deadline, direct::run(self, line, input)).await.map_err(late)? {
            Some(answer) => answer,
            None => self.run_client(line, input, may_start, deadline).await,
        }
    }

    async fn run_client(
        &self,
        line: &CommandLine,
        input: Option<&[u8]>,
        may_start: bool,
        deadline: Instant,
    ) -> Result<Reply, TmuxError> {
        trust::before_client(&self.socket)?;
        self.check_version_until(deadline).await?;
        let mut command = self.command(may_start);
        command.args(line.words());
        command.stdin(input.map_or_else(|| Ok(Stdio::null()), unnamed_file).map_err(TmuxError::Spawn)?);
        self.run_to_exit(command, deadline).await
    }

    /// Runs the binary with one flag that concerns no server.
    pub(crate) async fn run_alone(&self, flag: &str, deadline: Instant) -> Result<Reply, TmuxError> {
        let mut command = self.program(false);
        command.arg(flag).stdin(Stdio::null());
        self.run_to_exit(command, deadline).await
    }

    async fn run_to_exit(&self, mut command: Command, deadline: Instant) -> Result<Reply, TmuxError> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| self.spawn_error(error))?;
        let failure = match timeout_at(deadline, exchange(&mut child, self.output_cap)).await {
            Ok(Ok(Ok(reply))) => return Ok(reply),
            Ok(Ok(Err(OverCap))) => TmuxError::TooLong(self.output_cap),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a tmux client could not be waited for");
                TmuxError::Incomplete
            }
            Err(_elapsed) => TmuxError::TimedOut(self.deadline),
        };
        if let Err(error) = child.kill().await {
            tracing::warn!(%error, "a tmux client could not be killed");
        }
        Err(failure)
    }

    /// Prepares a client that ends with this process, still without its command.
    pub(crate) fn command(&self, may_start: bool) -> Command {
        let mut command = self.program(may_start);
        command.args(self.options(may_start));
        command
    }

    /// Prepares a run of the binary that ends with this process, still without any word.
    fn program(&self, may_start: bool) -> Command {
        let mut command = Command::new(&self.binary);
        command.kill_on_drop(true);
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed(name)));
        if !may_start {
            command.envs(self.mark.iter().map(|(name, value)| (name, value)));
        }
        #[cfg(target_os = "linux")]
        end_with_parent(&mut command);
        command
    }

    pub(crate) fn spawn_error(&self, error: io::Error) -> TmuxError {
        match error.kind() {
            io::ErrorKind::NotFound => TmuxError::Missing(self.binary.clone()),
            _ => TmuxError::Spawn(error),
        }
    }
}

/// Makes a client end with this process: a client that outlives a crash can keep a dying server from
/// exiting.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "pre_exec is the only way to set the parent-death signal before exec")]
fn end_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let before_exec = move || {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
        // The parent may have died before the signal was set.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: runs between fork and exec; it makes two system calls, and neither allocates nor takes a lock
    // (an io::Error made of an errno is a plain number).
    unsafe { command.pre_exec(before_exec) };
}

/// Returns an unnamed file with the whole input. From a pipe, whose writer may die half-way, a client would
/// take a part for the whole.
fn unnamed_file(input: &[u8]) -> io::Result<Stdio> {
    let mut file = tempfile::tempfile()?;
    file.write_all(input)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

struct OverCap;

/// Reads the client's output until it exits.
async fn exchange(child: &mut Child, cap: usize) -> io::Result<Result<Reply, OverCap>> {
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (mut stdout, mut stderr) = (Vec::with_capacity(4096), Vec::new());
    let status: ExitStatus = tokio::select! {
        status = child.wait() => status?,
        OverCap = collect(&mut out, &mut stdout, cap) => return Ok(Err(OverCap)),
        OverCap = collect(&mut err, &mut stderr, STDERR_CAP) => return Ok(Err(OverCap)),
    };
    drain(&out, &mut stdout, cap);
    drain(&err, &mut stderr, STDERR_CAP);
    if stdout.len() > cap {
        return Ok(Err(OverCap));
    }
    Ok(Ok(Reply { ok: status.success(), stdout, stderr }))
}

/// Reads until the cap is exceeded; waits for ever at the end of the output.
async fn collect(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>, cap: usize) -> OverCap {
    while into.len() <= cap {
        match from.read_buf(into).await {
            Ok(0) | Err(_) => pending().await,
            Ok(_) => {}
        }
    }
    OverCap
}

/// Reads what is left after the exit, without waiting: tokio made the pipe non-blocking, and a read past
/// its readiness bookkeeping sees bytes that it has not been notified of yet.
fn drain(from: impl AsFd, into: &mut Vec<u8>, cap: usize) {
    let mut chunk = [0; 16 << 10];
    while into.len() <= cap {
        match nix::unistd::read(from.as_fd(), &mut chunk) {
            Ok(0) => return,
            Ok(n) => into.extend_from_slice(&chunk[..n]),
            Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
