//! Starts the session's program: everything is prepared before the fork, because after it only
//! async-signal-safe calls are allowed.
#![expect(unsafe_code, reason = "fork, and what may run between it and exec")]

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

use super::bounds::{self, Rule};
use super::report::{self, Step, tell};

/// Where a program without `/` is looked for when the job has no `PATH`.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";
/// Runs a file that the kernel cannot, as `execvp` does.
const SHELL: &CStr = c"/bin/sh";
/// The highest signal number there is (Linux; others have fewer).
const LAST_SIGNAL: c_int = 64;

/// Why the program does not run.
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
    #[error("not started without its limit {0}")]
    Limit(String),
    #[error("cannot enter {0:?}: {1}")]
    Directory(CString, io::Error),
    #[error("cannot run {0:?} in {1:?}: {2}{hint}", hint = hint(.0))]
    Exec(CString, CString, io::Error),
}

/// What may have been meant.
fn hint(name: &CString) -> &'static str {
    let is_line = name.to_bytes().iter().any(|byte| b" &|;<>".contains(byte));
    if is_line { " (a line for a shell is run by: sh -c LINE)" } else { "" }
}

impl SpawnError {
    /// As shells have it: 127 not found, 126 anything else.
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::Job(_) => 125,
            Self::Empty => 127,
            Self::Exec(.., error)
                if not_there(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)) =>
            {
                127
            }
            _ => 126,
        }
    }
}

/// A program that runs.
pub(super) struct Spawned {
    pub(super) agent: Pid,
    /// Limits that do not hold, and why, each a sentence.
    pub(super) unenforced: Vec<String>,
}

/// Runs the job's program in a group of its own, in the foreground of the terminal on standard
/// input. Returns when it has been executed.
pub(super) fn spawn(job: &Job) -> Result<Spawned, SpawnError> {
    let mut plan = Plan::new(job)?;
    let (reports, report) = close_on_exec_pipe().map_err(SpawnError::Fork)?;
    // SAFETY: there is one thread, and the child runs only Plan::run, which keeps to
    // async-signal-safe calls and never returns.
    match unsafe { fork() }.map_err(|error| SpawnError::Fork(error.into()))? {
        ForkResult::Child => plan.run(report.as_raw_fd()),
        ForkResult::Parent { child } => {
            // The child does the same; whoever is first. It fails once the program runs.
            let _ = setpgid(child, child);
            drop(report);
            plan.outcome(child, reports)
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

/// All that the child needs, as the kernel wants it.
struct Plan {
    rules: Vec<Rule>,
    directory: CString,
    umask: libc::mode_t,
    /// The program's name as given.
    name: CString,
    /// Where it may be.
    candidates: Vec<CString>,
    arguments: Strings,
    environment: Strings,
    /// `sh CANDIDATE ARGUMENTS…`; the candidate is filled in by the child.
    by_shell: Vec<*const c_char>,
}

impl Plan {
    fn new(job: &Job) -> Result<Self, SpawnError> {
        let program = job.argv.first().ok_or(SpawnError::Empty)?;
        let arguments = Strings::new(job.argv.iter().map(|word| CString::new(word.0.as_slice())))?;
        let mut by_shell = vec![SHELL.as_ptr(), ptr::null()];
        by_shell.extend(&arguments.pointers[1..]);
        Ok(Self {
            rules: bounds::rules(job),
            directory: CString::new(job.cwd.0.as_slice())?,
            umask: libc::mode_t::try_from(job.umask & 0o777).unwrap_or(0o077),
            name: CString::new(program.0.as_slice())?,
            candidates: candidates(&program.0, job)?,
            environment: Strings::new(environment(job).into_iter().map(CString::new))?,
            arguments,
            by_shell,
        })
    }

    /// In the child. Reports which step failed and its errno, where one does.
    fn run(&mut self, report: RawFd) -> ! {
        // SAFETY: only async-signal-safe calls; every pointer is to a NUL-terminated string or a
        // null-terminated array that `self` owns. SIGTTOU is still blocked when the terminal is taken.
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
            self.bind(report);
            let (step, error) = if libc::chdir(self.directory.as_ptr()) == 0 {
                (Step::Execute, self.execute())
            } else {
                (Step::Enter, Errno::last_raw())
            };
            tell(report, step, error);
            libc::_exit(127)
        }
    }

    /// Applies what bounds the program. Ends the child where it must not run without.
    ///
    /// # Safety
    /// In the child only.
    unsafe fn bind(&self, report: RawFd) {
        for (at, rule) in self.rules.iter().enumerate() {
            let Err(error) = rule.apply() else { continue };
            tell(report, Step::Bind(at), error as c_int);
            if rule.strict {
                // SAFETY: as in `run`.
                unsafe { libc::_exit(126) }
            }
        }
    }

    /// Tries each candidate; the errno to report when none can be run, as `execvp` chooses it.
    ///
    /// # Safety
    /// In the child only.
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
                error if not_there(error) => {}
                error => return error as c_int,
            }
        }
        answer as c_int
    }

    /// In the parent: waits until the program runs or has failed to.
    fn outcome(self, child: Pid, reports: OwnedFd) -> Result<Spawned, SpawnError> {
        let mut told = Vec::new();
        // What cannot be read is as if it were not told.
        drop(File::from(reports).read_to_end(&mut told));
        let mut unenforced = Vec::new();
        for (step, errno) in report::parse(&told) {
            let error = || io::Error::from_raw_os_error(errno);
            let failure = match step {
                Step::Enter => SpawnError::Directory(self.directory.clone(), error()),
                Step::Execute => SpawnError::Exec(self.name.clone(), self.directory.clone(), error()),
                Step::Bind(at) => {
                    let why = self.rules[at].why_not(Errno::from_raw(errno));
                    if !self.rules[at].strict {
                        unenforced.push(why);
                        continue;
                    }
                    SpawnError::Limit(why)
                }
            };
            let _ = nix::sys::wait::waitpid(child, None);
            return Err(failure);
        }
        Ok(Spawned { agent: child, unenforced })
    }
}

/// The program is not at this place, or the place does not exist.
fn not_there(error: Errno) -> bool {
    matches!(error, Errno::ENOENT | Errno::ENOTDIR | Errno::ENODEV | Errno::ESTALE | Errno::ENAMETOOLONG)
}

/// Where the program may be: as named where it has a `/`, else in each directory of the job's `PATH`.
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

/// `NAME=value` of each variable: the job's, and from tmux what the job leaves to it.
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

/// Strings and the null-terminated array of pointers to them.
struct Strings {
    pointers: Vec<*const c_char>,
    /// Owns what the pointers point to.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(strings: impl Iterator<Item = Result<CString, NulError>>) -> Result<Self, NulError> {
        let owned = strings.collect::<Result<Vec<_>, _>>()?;
        let pointers = owned.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { pointers, _owned: owned })
    }
}
