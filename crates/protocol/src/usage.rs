//! Resource usage of sessions.

use serde::{Deserialize, Serialize};

/// The total resource usage of an incarnation's program, measured at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// User CPU time, in microseconds.
    pub user_us: u64,
    /// System CPU time, in microseconds.
    pub system_us: u64,
    /// Largest resident set of a single process, in KiB.
    pub max_rss_kib: u64,
    /// Number of processes killed for lack of memory, if the control group tells.
    pub oom_kills: Option<u64>,
}

/// The current resource usage of a session's processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Number of processes in its tree.
    pub processes: u32,
    /// Memory of all processes, in bytes: the sum of PSS, or the value of the control group.
    pub memory: u64,
    /// The origin of `memory`: `cgroup`, `pss`, or `rss` if PSS is not available.
    pub memory_by: String,
    /// CPU time of all processes and of the children they waited for, in microseconds.
    pub cpu_us: u64,
    /// Share of one processor since the previous sample, in percent; absent in the first sample.
    pub cpu_percent: Option<u32>,
    /// Space used by `work/`, `tmp/` and `logs/` in its directory, in bytes.
    pub disk: Option<u64>,
    /// Space used by its logs, in bytes.
    pub log: Option<u64>,
}
