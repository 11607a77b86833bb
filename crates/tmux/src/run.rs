//! Runs one command line, over a connection of our own or by a tmux client: a deadline, an output cap,
//! and no orphan.

use std::future::pending;
use std::io::{self, Seek, Write};
use std::os::fd::AsFd;
use std::process::{ExitStatus, Stdio};

use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::time::{Instant, timeout_at};

use crate::command::Line;
use crate::device::{Device, is_passed};
use crate::direct;
use crate::error::TmuxError;
use crate::owner;

/// Where standard error is cut, in bytes; tmux's messages are one line.
pub(crate) const STDERR_CAP: usize = 64 << 10;

/// What a command line left that came to its end.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) ok: bool,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Reply {
    /// Why there is no end mark.
    pub(crate) fn error(&self) -> TmuxError {
        TmuxError::from_message(&String::from_utf8_lossy(&self.stderr))
    }
}

impl Device {
    /// Runs one command line, `input` on its standard input, and waits for its end: never for the end
    /// of its output, because a stopped server holds that open. A reply says that it ended, not that
    /// it succeeded: look for the end mark.
    ///
    /// No client is started where the server takes the line directly. Dropping the future ends the
    /// connection or the client. On Linux a client also ends with the thread that started it, so call
    /// this from a thread that lives as long as the program wants answers.
    ///
    /// # Errors
    /// [`TmuxError::Missing`], [`TmuxError::Spawn`], [`TmuxError::TimedOut`], [`TmuxError::TooLong`],
    /// [`TmuxError::ServerExited`], [`TmuxError::Output`], and [`TmuxError::Incomplete`] where a client
    /// could not be waited for.
    pub(crate) async fn run(
        &self,
        line: &Line,
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
        line: &Line,
        input: Option<&[u8]>,
        may_start: bool,
        deadline: Instant,
    ) -> Result<Reply, TmuxError> {
        let mut child = self.spawn(line, input, may_start)?;
        let failure = match timeout_at(deadline, exchange(&mut child, self.output_cap)).await {
            Ok(Ok(Ok(reply))) => return Ok(reply),
            Ok(Ok(Err(TooMuch))) => TmuxError::TooLong(self.output_cap),
            Ok(Err(error)) => {
                tracing::warn!(%error, "a tmux client could not be waited for");
                TmuxError::Incomplete
            }
            Err(_elapsed) => TmuxError::TimedOut(self.deadline),
        };
        if let Err(error) = child.kill().await {
            tracing::warn!(%error, "a tmux client could not be ended");
        }
        Err(failure)
    }

    fn spawn(&self, line: &Line, input: Option<&[u8]>, may_start: bool) -> Result<Child, TmuxError> {
        owner::before_client(&self.socket)?;
        let mut command = self.command(may_start);
        command.args(line.words());
        command.stdin(input.map_or_else(|| Ok(Stdio::null()), whole).map_err(TmuxError::Spawn)?);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(|error| self.not_run(error))
    }

    /// A client that ends with us, still without its command.
    pub(crate) fn command(&self, may_start: bool) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(self.options(may_start)).kill_on_drop(true);
        command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_passed(name)));
        if !may_start {
            command.envs(self.mark.iter().map(|(name, value)| (name, value)));
        }
        #[cfg(target_os = "linux")]
        end_with_parent(&mut command);
        command
    }

    pub(crate) fn not_run(&self, error: io::Error) -> TmuxError {
        match error.kind() {
            io::ErrorKind::NotFound => TmuxError::Missing(self.binary.clone()),
            _ => TmuxError::Spawn(error),
        }
    }
}

/// A client that outlives a crash of ours can keep a dying server from ending.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "pre_exec is the only way to set the parent-death signal before exec")]
fn end_with_parent(command: &mut Command) {
    let parent = nix::unistd::getpid();
    let before_exec = move || {
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM)?;
        // The parent may have died before the signal was asked for.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(Errno::ESRCH.into()) }
    };
    // SAFETY: runs between fork and exec; it makes two system calls, and neither allocates nor
    // takes a lock (an io::Error made of an errno is a plain number).
    unsafe { command.pre_exec(before_exec) };
}

/// A file that has no name, with all of the input. Of a pipe, whose writer may end half-way, a client would take a part for
/// the whole.
fn whole(input: &[u8]) -> io::Result<Stdio> {
    let mut file = tempfile::tempfile()?;
    file.write_all(input)?;
    file.rewind()?;
    Ok(Stdio::from(file))
}

struct TooMuch;

/// Reads the client until it ends.
async fn exchange(child: &mut Child, cap: usize) -> io::Result<Result<Reply, TooMuch>> {
    let (Some(mut out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let (mut stdout, mut stderr) = (Vec::with_capacity(4096), Vec::new());
    let status: ExitStatus = tokio::select! {
        status = child.wait() => status?,
        TooMuch = collect(&mut out, &mut stdout, cap) => return Ok(Err(TooMuch)),
        TooMuch = collect(&mut err, &mut stderr, STDERR_CAP) => return Ok(Err(TooMuch)),
    };
    drain(&out, &mut stdout, cap);
    drain(&err, &mut stderr, STDERR_CAP);
    if stdout.len() > cap {
        return Ok(Err(TooMuch));
    }
    Ok(Ok(Reply { ok: status.success(), stdout, stderr }))
}

/// Reads until there is too much.
async fn collect(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>, cap: usize) -> TooMuch {
    while into.len() <= cap {
        match from.read_buf(into).await {
            Ok(0) | Err(_) => pending().await,
            Ok(_) => {}
        }
    }
    TooMuch
}

/// Takes what is there after the exit, without waiting: tokio made the pipe non-blocking, and
/// reading past its readiness bookkeeping sees bytes that it has not been told of yet.
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
