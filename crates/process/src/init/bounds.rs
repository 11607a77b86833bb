//! What bounds the program, applied by the child itself between fork and exec: its control group, nice,
//! processors and resource limits. All is made ready before the fork; the child only makes system calls.
#![expect(unsafe_code, reason = "what may run between fork and exec")]

use std::ffi::c_int;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use protocol::job::Job;
use protocol::life::Limits;

enum Bound {
    /// Enter the group to which this file belongs.
    Enter(io::Result<File>),
    Nice(c_int),
    /// One bit a processor.
    Processors(Vec<usize>),
    Resource(Resource, rlim_t),
}

/// One thing to apply, and what it is called.
pub(super) struct Rule {
    bound: Bound,
    name: String,
    /// Whether the program must not run without it.
    pub(super) strict: bool,
}

/// Everything to apply, in this order.
pub(super) fn rules(job: &Job) -> Vec<Rule> {
    let Limits { memory, cpu, tasks, open_files, core, file_size, nice, best_effort, .. } = job.limits;
    let mut rules = Vec::new();
    let mut add = |bound: Option<Bound>, limits: Limits| {
        // A group that bounds nothing only helps to find the processes.
        let strict = !best_effort && !limits.is_empty();
        let name = if limits.is_empty() { "control group".to_owned() } else { limits.to_string() };
        rules.extend(bound.map(|bound| Rule { bound, name, strict }));
    };
    let enter = job.cgroup.as_ref().map(|group| Bound::Enter(procs_file(group.as_path())));
    let resource = |what, most: Option<u64>| most.map(|most| Bound::Resource(what, most));
    add(enter, Limits { memory, cpu, tasks, ..Limits::default() });
    add(nice.map(Bound::Nice), Limits { nice, ..Limits::default() });
    add(processors(&job.limits), Limits { cpus: job.limits.cpus.clone(), ..Limits::default() });
    add(resource(Resource::RLIMIT_NOFILE, open_files), Limits { open_files, ..Limits::default() });
    add(resource(Resource::RLIMIT_CORE, core), Limits { core, ..Limits::default() });
    add(resource(Resource::RLIMIT_FSIZE, file_size), Limits { file_size, ..Limits::default() });
    rules
}

impl Rule {
    /// In the child.
    pub(super) fn apply(&self) -> Result<(), Errno> {
        self.bound.apply()
    }

    /// In the parent: why it does not hold, as a sentence.
    pub(super) fn why_not(&self, error: Errno) -> String {
        let why = match &self.bound {
            Bound::Resource(what, most) => match getrlimit(*what) {
                Ok((_, hard)) if hard < *most => format!("the hard limit is {hard}"),
                _ => error.desc().to_owned(),
            },
            Bound::Enter(Err(error)) => format!("its control group cannot be entered: {error}"),
            Bound::Enter(_) => format!("its control group cannot be entered: {}", error.desc()),
            _ => error.desc().to_owned(),
        };
        format!("{}: {why}", self.name)
    }
}

impl Bound {
    fn apply(&self) -> Result<(), Errno> {
        match self {
            Self::Enter(Ok(procs)) => nix::unistd::write(procs, b"0").map(drop),
            Self::Enter(Err(error)) => Err(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)),
            // SAFETY: a plain system call.
            Self::Nice(nice) => {
                Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, *nice) }).map(drop)
            }
            Self::Processors(set) => use_only(set),
            Self::Resource(what, most) => {
                setrlimit(*what, *most, *most).inspect_err(|_| tighten(*what, *most))
            }
        }
    }
}

/// More than the hard limit is not to be had: then as much as there is.
fn tighten(what: Resource, most: rlim_t) {
    if let Ok((_, hard)) = getrlimit(what) {
        let _ = setrlimit(what, hard.min(most), hard.min(most));
    }
}

/// The file through which a process enters a group.
fn procs_file(group: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(group.join("cgroup.procs"))
}

fn processors(limits: &Limits) -> Option<Bound> {
    let bits = usize::BITS as usize;
    let last = limits.cpus.iter().map(|(_, last)| usize::from(*last)).max()?;
    let mut set = vec![0; last / bits + 1];
    for cpu in limits.cpus.iter().flat_map(|(first, last)| *first..=*last).map(usize::from) {
        set[cpu / bits] |= 1 << (cpu % bits);
    }
    Some(Bound::Processors(set))
}

#[cfg(target_os = "linux")]
fn use_only(set: &[usize]) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many bytes as it is told there are, and no more.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(set), set.as_ptr().cast()) };
    Errno::result(done).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn use_only(_: &[usize]) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}
