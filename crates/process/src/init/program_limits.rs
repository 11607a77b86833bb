//! Limits of the program, applied by the child itself between fork and exec: control group, nice value,
//! processors and resource limits. Everything is prepared before the fork; the child only makes system calls.
#![expect(unsafe_code, reason = "only async-signal-safe calls are possible between fork and exec")]

use std::ffi::{c_int, c_long};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, rlim_t, setrlimit};
use protocol::Limits;
use protocol::job::Job;

/// A limit, prepared to be applied.
enum Limit {
    /// Enter the control group by its `cgroup.procs` file.
    Enter(io::Result<File>),
    Nice(c_int),
    /// CPU set, one bit per processor.
    Processors(Vec<usize>),
    Resource(Resource, rlim_t),
}

/// A limit with its name for messages.
pub(super) struct LimitRule {
    limit: Limit,
    name: String,
    /// True if the program must not run without it.
    pub(super) strict: bool,
}

/// Returns all limits of the job, in the order in which they are applied.
pub(super) fn rules(job: &Job) -> Vec<LimitRule> {
    let Limits { memory, cpu, tasks, open_files, core, file_size, nice, best_effort, .. } = job.limits;
    let mut rules = Vec::new();
    let mut add = |limit: Option<Limit>, limits: Limits| {
        // A control group without limits only serves to find the processes, so the program may run outside of it.
        let strict = !best_effort && !limits.is_empty();
        let name = if limits.is_empty() { "control group".to_owned() } else { limits.to_string() };
        rules.extend(limit.map(|limit| LimitRule { limit, name, strict }));
    };
    let enter = job.cgroup.as_ref().map(|group| Limit::Enter(procs_file(group.as_path())));
    let resource = |resource, max: Option<u64>| max.map(|max| Limit::Resource(resource, max));
    add(enter, Limits { memory, cpu, tasks, ..Limits::default() });
    add(nice.map(Limit::Nice), Limits { nice, ..Limits::default() });
    add(processors(&job.limits), Limits { cpus: job.limits.cpus.clone(), ..Limits::default() });
    add(resource(Resource::RLIMIT_NOFILE, open_files), Limits { open_files, ..Limits::default() });
    add(resource(Resource::RLIMIT_CORE, core), Limits { core, ..Limits::default() });
    add(resource(Resource::RLIMIT_FSIZE, file_size), Limits { file_size, ..Limits::default() });
    rules
}

impl LimitRule {
    /// Applies the limit; called in the child.
    pub(super) fn apply(&self) -> Result<(), Errno> {
        self.limit.apply()
    }

    /// Returns the reason why it could not be applied, as a sentence; called in the parent.
    pub(super) fn failure(&self, error: Errno) -> String {
        let reason = match &self.limit {
            Limit::Resource(resource, max) => match getrlimit(*resource) {
                Ok((_, hard)) if hard < *max => format!("the hard limit is {hard}"),
                _ => error.desc().to_owned(),
            },
            Limit::Enter(Err(error)) => format!("its control group cannot be entered: {error}"),
            Limit::Processors(_) if error == Errno::EINVAL => match processor_count() {
                Some(count) => format!("there are {count} processors, numbered from 0, and none of these"),
                None => error.desc().to_owned(),
            },
            Limit::Enter(_) => format!("its control group cannot be entered: {}", error.desc()),
            _ => error.desc().to_owned(),
        };
        format!("{}: {reason}", self.name)
    }
}

impl Limit {
    fn apply(&self) -> Result<(), Errno> {
        match self {
            Self::Enter(Ok(procs)) => nix::unistd::write(procs, b"0").map(drop),
            Self::Enter(Err(error)) => Err(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)),
            // SAFETY: a system call on plain integers.
            Self::Nice(nice) => {
                Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, *nice) }).map(drop)
            }
            Self::Processors(set) => set_affinity(set),
            Self::Resource(resource, max) => {
                setrlimit(*resource, *max, *max).inspect_err(|_| lower_to_hard_limit(*resource, *max))
            }
        }
    }
}

/// Sets the hard limit, if that is lower than the requested one.
fn lower_to_hard_limit(resource: Resource, max: rlim_t) {
    if let Ok((_, hard)) = getrlimit(resource) {
        let _ = setrlimit(resource, hard.min(max), hard.min(max));
    }
}

/// Opens the file by which a process enters a control group.
fn procs_file(group: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(group.join("cgroup.procs"))
}

fn processors(limits: &Limits) -> Option<Limit> {
    let bits = usize::BITS as usize;
    let last = limits.cpus.iter().map(|(_, last)| usize::from(*last)).max()?;
    let mut set = vec![0; last / bits + 1];
    for cpu in limits.cpus.iter().flat_map(|(first, last)| *first..=*last).map(usize::from) {
        set[cpu / bits] |= 1 << (cpu % bits);
    }
    Some(Limit::Processors(set))
}

/// Number of processors of this machine, in use or not.
fn processor_count() -> Option<c_long> {
    // SAFETY: a call on a plain integer. `nix` has this one for Linux alone.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    (count > 0).then_some(count)
}

#[cfg(target_os = "linux")]
fn set_affinity(set: &[usize]) -> Result<(), Errno> {
    // SAFETY: the kernel reads exactly the number of bytes that it is given, the size of the set.
    let done = unsafe { libc::sched_setaffinity(0, size_of_val(set), set.as_ptr().cast()) };
    Errno::result(done).map(drop)
}

#[cfg(not(target_os = "linux"))]
fn set_affinity(_: &[usize]) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}
