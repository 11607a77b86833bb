//! The rules that find what should be ended, and the actions they can take.

use std::str::FromStr;

crate::names! {
    /// A reap rule.
    pub enum Rule {
        /// A pane whose program or incarnation has ended.
        ZombiePane = "zombie_pane",
        /// A worker that sent no heartbeat within its lease, or never sent anything.
        StaleWorker = "stale_worker",
        /// An agent that holds a message and shows no activity: no hook, no output, no CPU use.
        StaleAgent = "stale_agent",
        /// A session that has work, writes nothing and uses no CPU.
        Hung = "hung",
        /// A session without work for a long time.
        IdleSession = "idle_session",
        /// A session over its memory limit.
        Memory = "memory",
        /// A session over its disk limit.
        Disk = "disk",
        /// A session over its run time limit.
        RunTime = "run_time",
        /// Processes that a program left at its end.
        Leftovers = "leftovers",
        /// Processes that carry the tag of an ended incarnation or claim.
        Orphans = "orphans",
        /// tmux clients of a `poold` that is dead.
        StaleClient = "stale_client",
        /// An idle session while the machine is short of memory.
        HostMemory = "host_memory",
        /// An idle session while the disk of the state directory is nearly full.
        HostDisk = "host_disk",
    }
}

crate::names! {
    /// The action of a rule.
    pub enum Action {
        /// Ends it.
        Kill = "kill",
        /// Ends it and starts it again.
        Restart = "restart",
        /// Ends it to free its slot; it is woken when needed.
        Park = "park",
        /// Reports it.
        Report = "report",
    } else "it is kill, restart, park or report"
}

impl Rule {
    /// True if the rule finds whole sessions, so that each session can have an action of its own.
    pub fn applies_to_session(self) -> bool {
        use Rule::{Disk, Hung, IdleSession, Memory, RunTime, StaleAgent};
        matches!(self, StaleAgent | Hung | IdleSession | Memory | Disk | RunTime) || self.is_about_machine()
    }

    /// True if the rule is about the machine: then it finds a session that loses nothing by being parked.
    pub fn is_about_machine(self) -> bool {
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
