//! The rules that find what should be ended, and the actions they can take.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::names;

/// A reap rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A pane whose program or incarnation has ended.
    ZombiePane,
    /// A worker that sent no heartbeat within its lease, or never sent anything.
    StaleWorker,
    /// An agent that holds a message and shows no activity: no hook, no output, no CPU use.
    StaleAgent,
    /// A session that has work, writes nothing and uses no CPU.
    Hung,
    /// A session without work for a long time.
    IdleSession,
    /// A session over its memory limit.
    Memory,
    /// A session over its disk limit.
    Disk,
    /// A session over its run time limit.
    RunTime,
    /// Processes that a program left at its end.
    Leftovers,
    /// Processes that carry the tag of an ended incarnation or claim.
    Orphans,
    /// tmux clients of a `poold` that is dead.
    StaleClient,
    /// An idle session while the machine is short of memory.
    HostMemory,
    /// An idle session while the disk of the state directory is nearly full.
    HostDisk,
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Ends it.
    Kill,
    /// Ends it and starts it again.
    Restart,
    /// Ends it to free its slot; it is woken when needed.
    Park,
    /// Reports it.
    Report,
}

names!(Rule:
    ZombiePane = "zombie_pane",
    StaleWorker = "stale_worker",
    StaleAgent = "stale_agent",
    Hung = "hung",
    IdleSession = "idle_session",
    Memory = "memory",
    Disk = "disk",
    RunTime = "run_time",
    Leftovers = "leftovers",
    Orphans = "orphans",
    StaleClient = "stale_client",
    HostMemory = "host_memory",
    HostDisk = "host_disk",
);

impl Rule {
    /// True if the rule finds whole sessions, so that each session can have an action of its own.
    pub fn applies_to_session(self) -> bool {
        use Rule::{Disk, Hung, IdleSession, Memory, RunTime, StaleAgent};
        matches!(self, StaleAgent | Hung | IdleSession | Memory | Disk | RunTime) || self.is_about_host()
    }

    /// True if the rule is about the machine: then it finds a session that loses nothing by being parked.
    pub fn is_about_host(self) -> bool {
        matches!(self, Self::HostMemory | Self::HostDisk)
    }

    /// True if the rule may take this action.
    pub fn allows(self, action: Action) -> bool {
        match self {
            // Leftovers of a session occupy its slot until they are ended.
            Self::ZombiePane | Self::Leftovers => action == Action::Kill,
            Self::HostMemory | Self::HostDisk => matches!(action, Action::Park | Action::Report),
            rule => rule.applies_to_session() || matches!(action, Action::Kill | Action::Report),
        }
    }

    /// Returns the actions that the rule may take, as in `kill or report`.
    pub fn allowed_actions(self) -> String {
        let allowed = Action::ALL.into_iter().filter(|action| self.allows(*action));
        allowed.map(Action::as_str).collect::<Vec<_>>().join(" or ")
    }
}

names!(Action: Kill = "kill", Restart = "restart", Park = "park", Report = "report");

impl FromStr for Rule {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let word = word.replace('-', "_");
        Self::of_name(&word).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|rule| rule.as_str()).collect();
            format!("no rule {word:?}; there are {}", words.join(", "))
        })
    }
}

impl FromStr for Action {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::of_name(word).ok_or("it is kill, restart, park or report")
    }
}
