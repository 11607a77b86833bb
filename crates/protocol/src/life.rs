//! How a session lives: what bounds it, what becomes of it when it ends, and what it has used.

mod limits;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::reap::{Action, Rule};
use crate::time::Timestamp;

pub use limits::{LimitError, Limits};

/// What becomes of a session, chosen when it is created.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Whether it is started again when its program ends by itself.
    pub restart: RestartPolicy,
    /// Starts by themselves within the configured window, before it stays as it is; the
    /// configuration's where nothing is said.
    pub max_restarts: Option<u32>,
    /// Parked after being idle for so long, in milliseconds; the configuration's where nothing is said.
    pub idle_timeout_ms: Option<u64>,
    /// Removed so long after its end, in milliseconds; the configuration's where nothing is said.
    pub ttl_ms: Option<u64>,
    /// Ended after running for so long, in milliseconds.
    pub max_runtime_ms: Option<u64>,
    /// Removed as soon as its program is over.
    pub ephemeral: bool,
    /// Never parked by itself.
    pub pinned: bool,
    /// What becomes of it where one of these rules applies; its agent's, or the configuration's, where nothing is said.
    #[serde(default)]
    pub reap: BTreeMap<Rule, Action>,
}

/// What becomes of daemons that a session's program started and detached, at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Leftovers {
    /// They are ended, but for those that serve others: a tmux server, another pool, an ssh-agent, by the socket
    /// that they listen on outside of the session's own directory. Those are reported.
    #[default]
    Kill,
    /// They are reported.
    Report,
}

/// Whether a session is started again when its program ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartPolicy {
    /// No.
    #[default]
    No,
    /// Where it ended with another code than 0, by a signal, or for a limit of memory.
    OnFailure,
    /// However it ended, and where its server or the machine went down.
    Always,
}

impl RestartPolicy {
    /// The word for it, as in options and the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::OnFailure => "on-failure",
            Self::Always => "always",
        }
    }
}

impl std::str::FromStr for RestartPolicy {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let all = [Self::No, Self::OnFailure, Self::Always];
        all.into_iter().find(|policy| policy.word() == word).ok_or("it is no, on-failure or always")
    }
}

/// The starts of a session that nobody asked for by name: restarts by policy, and wakes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// When they were, oldest first; those that the configured window does not reach are forgotten.
    pub starts: Vec<Timestamp>,
    /// Ends in a row after which it was started again; 0 once it ran well for a while.
    pub failures: u32,
    /// When it is to be started next.
    pub due_at: Option<Timestamp>,
    /// There were too many: it stays as it is until somebody starts it.
    pub exhausted: bool,
}

/// The conversation of an agent that can take one up again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id, chosen by the pool: a version-4 UUID.
    pub id: String,
    /// Whether something was said in it, so that it can be taken up again.
    pub begun: bool,
}

/// What the program of an incarnation used in all, told at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// User CPU time, in microseconds.
    pub user_us: u64,
    /// System CPU time, in microseconds.
    pub system_us: u64,
    /// Largest resident set of one process, in KiB.
    pub max_rss_kib: u64,
    /// Processes that were ended for want of memory, where its control group tells.
    pub oom_kills: Option<u64>,
}

/// What a session's processes use now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Processes of its tree.
    pub processes: u32,
    /// Memory of all of them, in bytes: shared pages counted in shares (PSS), or by the control group.
    pub memory: u64,
    /// Who says so: `cgroup`, `pss` or `rss` (where the shares are not told).
    pub memory_by: String,
    /// CPU time of all of them and of what they waited for, in microseconds.
    pub cpu_us: u64,
    /// Share of one processor since the last look, in hundredths; none at the first look.
    pub cpu_percent: Option<u32>,
    /// Bytes below its directory on disk: `work/`, `tmp/` and `logs/`.
    pub disk: Option<u64>,
    /// Bytes of its logs on disk.
    pub log: Option<u64>,
}
