//! The rules by which something is found that should be dead, and what may become of it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A pane whose program is over, or of an incarnation that is.
    ZombiePane,
    /// A worker that was silent about a message for longer than its lease, or of which nothing was heard at all.
    StaleWorker,
    /// An agent that holds a message, and of which nothing is seen: no word, no output, no use of the processor.
    StaleAgent,
    /// A session that has something to do, writes nothing and does not use the processor.
    Hung,
    /// A session that has had nothing to do for long.
    IdleSession,
    /// A session over its memory.
    Memory,
    /// A session over its disk.
    Disk,
    /// A session over its run time.
    RunTime,
    /// Processes that a program left when it ended.
    Leftovers,
    /// Processes that carry the mark of an incarnation, or of a claim, that is over.
    Orphans,
    /// tmux clients of a `poold` that is dead.
    StaleClient,
}

/// What becomes of what a rule finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It is ended.
    Kill,
    /// It is ended and started again.
    Restart,
    /// It is ended to free its slot, and woken when it is needed.
    Park,
    /// It is reported.
    Report,
}

impl Rule {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ZombiePane,
        Self::StaleWorker,
        Self::StaleAgent,
        Self::Hung,
        Self::IdleSession,
        Self::Memory,
        Self::Disk,
        Self::RunTime,
        Self::Leftovers,
        Self::Orphans,
        Self::StaleClient,
    ];

    /// The word for it, as in options and the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ZombiePane => "zombie_pane",
            Self::StaleWorker => "stale_worker",
            Self::StaleAgent => "stale_agent",
            Self::Hung => "hung",
            Self::IdleSession => "idle_session",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::RunTime => "run_time",
            Self::Leftovers => "leftovers",
            Self::Orphans => "orphans",
            Self::StaleClient => "stale_client",
        }
    }

    /// Whether it is about a whole session, which can be started again or put aside.
    #[must_use]
    pub fn is_of_session(self) -> bool {
        use Rule::{Disk, Hung, IdleSession, Memory, RunTime, StaleAgent};
        matches!(self, StaleAgent | Hung | IdleSession | Memory | Disk | RunTime)
    }

    /// What may become of what it finds.
    #[must_use]
    pub fn allows(self, action: Action) -> bool {
        match self {
            // What is left of a session holds its slot.
            Self::ZombiePane | Self::Leftovers => action == Action::Kill,
            rule => rule.is_of_session() || matches!(action, Action::Kill | Action::Report),
        }
    }
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Kill, Self::Restart, Self::Park, Self::Report];

    /// The word for it, as in options and the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Restart => "restart",
            Self::Park => "park",
            Self::Report => "report",
        }
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let word = word.replace('-', "_");
        Self::ALL.into_iter().find(|rule| rule.word() == word).ok_or_else(|| {
            let words: Vec<&str> = Self::ALL.iter().map(|rule| rule.word()).collect();
            format!("no rule {word:?}; there are {}", words.join(", "))
        })
    }
}

impl FromStr for Action {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|action| action.word() == word);
        found.ok_or("it is kill, restart, park or report")
    }
}
