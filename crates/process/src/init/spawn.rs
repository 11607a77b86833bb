//! Starts the session's program. Everything is prepared before the fork, because after it only
//! async-signal-safe calls are allowed.
#![expect(unsafe_code, reason = "fork, and async-signal-safe calls between fork and exec")]

use std::ffi::{CStr, CString, NulError, c_char, c_int};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::unistd::{ForkResult, Pid, fork, pipe, setpgid};
use protocol::job::Job;

use super::child_report::{self, ChildStep, send_report};
use super::program_limits::{self, LimitRule};

/// Search path for a program name without `/`, if the job has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// Shell for scripts without an interpreter line, as with `execvp(3)`.
const SHELL: &CStr = c"/bin/sh";
/// Highest signal number (Linux; other systems have fewer).
const LAST_SIGNAL: c_int = 64;

/// Beginning of the reason why a program was not started for a limit that cannot be held.
pub const LIMIT_NOT_HELD: &str = "not started without its limit";

/// Failure to start the program.
#[derive(Debug, thiserror::Error)]
pub(super) enum SpawnError {
    #[error("the job cannot be read: {0}")]
    Job(io::Error),
    #[error("no program to run")]
    Empty,
    #[error("an argument, variable or path holds a NUL byte")]
    Nul(#[from] NulError),
    #[error("cannot start a process: {0}")]
    Fork(io::Error),
    #[error("{LIMIT_NOT_HELD} {0}")]
    Limit(String),
    #[error("cannot enter {0:?}: {1}")]
    Directory(CString, io::Error),
    #[error("cannot run {0:?} in {1:?}: {2}{hint}", hint = hint(.0))]
    Exec(CString, CString, io::Error),
}

/// Returns advice for a name that looks like a shell command line.
fn hint(name: &CString) -> &'static str {
    let is_line = name.to_bytes().iter().any(|byte| b" &|;<>".contains(byte));
    if is_line { " (to run a shell command line: sh -c LINE)" } else { "" }
}

impl SpawnError {
    /// Returns the exit code, as in shells: 127 for a missing program, 126 for other errors.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Job(_) => 125,
            Self::Empty => 127,
            Self::Exec(.., error)
                if is_not_found(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)) =>
            {
                127
            }
            _ => 126,
        }
    }
}

/// A running program.
pub(super) struct Spawned {
    pub(super) agent: Pid,
    /// Limits that are not enforced, each a sentence with the reason.
    pub(super) unenforced: Vec<String>,
    /// The end from which its standard error is read, if that is kept apart.
    pub(super) stderr: Option<OwnedFd>,
}

/// Starts the job's program in a process group of its own, in the foreground of the terminal on standard
/// input. Returns after its exec.
pub(super) fn spawn(job: &Job) -> Result<Spawned, SpawnError> {
    let mut plan = Plan::new(job)?;
    let stderr = job.stderr.as_ref().map(|_| close_on_exec_pipe()).transpose().map_err(SpawnError::Fork)?;
    let (stderr, write) = stderr.unzip();
    plan.stderr = write;
    let (reports, report) = close_on_exec_pipe().map_err(SpawnError::Fork)?;
    // SAFETY: there is one thread, and the child runs only Plan::run, which makes only async-signal-safe
    // calls and never returns.
    match unsafe { fork() }.map_err(|error| SpawnError::Fork(error.into()))? {
        ForkResult::Child => plan.run(report.as_raw_fd()),
        ForkResult::Parent { child } => {
            // Parent and child both do this, so that it is done before either continues. Fails after the exec, which is
            // harmless.
            let _ = setpgid(child, child);
            drop(report);
            plan.outcome(child, reports).map(|spawned| Spawned { stderr, ..spawned })
        }
    }
}

fn close_on_exec_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe()?;
    for end in [&read, &write] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    Ok((read, write))
}

/// Everything that the child needs, in the form that the system calls take.
struct Plan {
    rules: Vec<LimitRule>,
    directory: CString,
    umask: libc::mode_t,
    /// The pipe that becomes standard error, if that is kept apart.
    stderr: Option<OwnedFd>,
    /// Program name as given in the job.
    name: CString,
    /// Paths to try.
    candidates: Vec<CString>,
    arguments: Strings,
    environment: Strings,
    /// Arguments `sh CANDIDATE ARGUMENTS…`; the child fills in the candidate.
    by_shell: Vec<*const c_char>,
}

impl Plan {
    fn new(job: &Job) -> Result<Self, SpawnError> {
        let program = job.argv.first().ok_or(SpawnError::Empty)?;
        let arguments = Strings::new(job.argv.iter().map(|word| CString::new(word.0.as_slice())))?;
        let mut by_shell = vec![SHELL.as_ptr(), ptr::null()];
        by_shell.extend(&arguments.pointers[1..]);
        Ok(Self {
            rules: program_limits::rules(job),
            directory: CString::new(job.cwd.0.as_slice())?,
            umask: libc::mode_t::try_from(job.umask & 0o777).unwrap_or(0o077),
            stderr: None,
            name: CString::new(program.0.as_slice())?,
            candidates: candidates(&program.0, job)?,
            environment: Strings::new(environment(job).into_iter().map(CString::new))?,
            arguments,
            by_shell,
        })
    }

    /// Applies everything and executes the program; called in the child. Reports the failed step and its
    /// errno.
    fn run(&mut self, report: RawFd) -> ! {
        // SAFETY: only async-signal-safe calls; every pointer is to a NUL-terminated string or a
        // null-terminated array that `self` owns. SIGTTOU is still blocked at tcsetpgrp.
        unsafe {
            libc::umask(self.umask);
            libc::setpgid(0, 0);
            libc::tcsetpgrp(libc::STDIN_FILENO, libc::getpid());
            for signal in 1..=LAST_SIGNAL {
                libc::signal(signal, libc::SIG_DFL);
            }
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
            if let Some(pipe) = &self.stderr {
                libc::dup2(pipe.as_raw_fd(), libc::STDERR_FILENO);
            }
            self.apply_limits(report);
            let (step, error) = if libc::chdir(self.directory.as_ptr()) == 0 {
                (ChildStep::Execute, self.execute())
            } else {
                (ChildStep::ChangeDirectory, Errno::last_raw())
            };
            send_report(report, step, error);
            libc::_exit(127)
        }
    }

    /// Applies the limits. Ends the child if a strict one fails.
    ///
    /// # Safety
    /// Must be called in the child only.
    unsafe fn apply_limits(&self, report: RawFd) {
        for (index, rule) in self.rules.iter().enumerate() {
            let Err(error) = rule.apply() else { continue };
            send_report(report, ChildStep::ApplyLimit(index), error as c_int);
            if rule.strict {
                // SAFETY: as in `run`.
                unsafe { libc::_exit(126) }
            }
        }
    }

    /// Tries each candidate; returns the errno that `execvp(3)` would return if none can be executed.
    ///
    /// # Safety
    /// Must be called in the child only.
    unsafe fn execute(&mut self) -> c_int {
        let mut answer = Errno::ENOENT;
        for candidate in &self.candidates {
            let (path, environment) = (candidate.as_ptr(), self.environment.pointers.as_ptr());
            // SAFETY: as in `run`.
            unsafe { libc::execve(path, self.arguments.pointers.as_ptr(), environment) };
            let mut error = Errno::last();
            if error == Errno::ENOEXEC {
                self.by_shell[1] = path;
                // SAFETY: as in `run`.
                unsafe { libc::execve(SHELL.as_ptr(), self.by_shell.as_ptr(), environment) };
                error = Errno::last();
            }
            match error {
                Errno::EACCES => answer = error,
                error if is_not_found(error) => {}
                error => return error as c_int,
            }
        }
        answer as c_int
    }

    /// Waits until the program runs or has failed to start; called in the parent.
    fn outcome(self, child: Pid, reports: OwnedFd) -> Result<Spawned, SpawnError> {
        let mut bytes = Vec::new();
        // An unreadable report counts as none.
        drop(File::from(reports).read_to_end(&mut bytes));
        let mut unenforced = Vec::new();
        for (step, errno) in child_report::parse(&bytes) {
            let error = || io::Error::from_raw_os_error(errno);
            let failure = match step {
                ChildStep::ChangeDirectory => SpawnError::Directory(self.directory.clone(), error()),
                ChildStep::Execute => SpawnError::Exec(self.name.clone(), self.directory.clone(), error()),
                ChildStep::ApplyLimit(index) => {
                    let failure = self.rules[index].failure(Errno::from_raw(errno));
                    if !self.rules[index].strict {
                        unenforced.push(failure);
                        continue;
                    }
                    SpawnError::Limit(failure)
                }
            };
            let _ = nix::sys::wait::waitpid(child, None);
            return Err(failure);
        }
        Ok(Spawned { agent: child, unenforced, stderr: None })
    }
}

/// True if the errno means that the path, or a directory of it, does not exist.
fn is_not_found(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV | Errno::ESTALE | Errno::ENAMETOOLONG)
}

/// Returns the paths to try: the name itself if it contains a `/`, otherwise one in each directory of the
/// job's `PATH`.
fn candidates(program: &[u8], job: &Job) -> Result<Vec<CString>, NulError> {
    if program.contains(&b'/') {
        return Ok(vec![CString::new(program)?]);
    }
    let path =
        job.env.iter().rev().find(|(name, _)| name.0 == b"PATH").map_or(DEFAULT_PATH, |(_, value)| &value.0);
    let directories =
        path.split(|b| *b == b':').map(|directory| if directory.is_empty() { b"." } else { directory });
    directories.map(|directory| CString::new([directory, b"/", program].concat())).collect()
}

/// Returns `NAME=value` of each variable of the job, and of those that are inherited from tmux unless the job
/// sets them.
fn environment(job: &Job) -> Vec<Vec<u8>> {
    let entry = |name: &[u8], value: &[u8]| [name, b"=", value].concat();
    let mut entries: Vec<Vec<u8>> = job.env.iter().map(|(name, value)| entry(&name.0, &value.0)).collect();
    let from_tmux: &[&str] = if job.see_tmux { &["TERM", "TMUX", "TMUX_PANE"] } else { &["TERM"] };
    for name in from_tmux {
        let given = job.env.iter().any(|(given, _)| given.0 == name.as_bytes());
        if let Some(value) = std::env::var_os(name).filter(|_| !given) {
            entries.push(entry(name.as_bytes(), value.as_bytes()));
        }
    }
    entries
}

/// Strings with a null-terminated array of pointers to them.
struct Strings {
    pointers: Vec<*const c_char>,
    /// Keeps the pointed-to strings alive.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(strings: impl Iterator<Item = Result<CString, NulError>>) -> Result<Self, NulError> {
        let owned = strings.collect::<Result<Vec<_>, _>>()?;
        let pointers = owned.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }
}
