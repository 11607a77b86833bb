//! The lifecycle policy of a session, and the budget of its automatic starts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reap::{Action, Rule};
use crate::time::Timestamp;

/// The lifecycle policy of a session, chosen at its creation and changed by `update`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Policy {
    /// Restart policy after its program ended by itself.
    pub restart: RestartPolicy,
    /// Maximum number of automatic starts within the configured window; defaults to the configuration's.
    pub max_restarts: Option<u32>,
    /// Idle time after which it is parked, in milliseconds; defaults to the configuration's.
    pub idle_timeout_ms: Option<u64>,
    /// Time between its end and its removal, in milliseconds; defaults to the configuration's.
    pub ttl_ms: Option<u64>,
    /// Run time after which it is ended, in milliseconds.
    pub max_runtime_ms: Option<u64>,
    /// Removes it as soon as its program ends.
    pub ephemeral: bool,
    /// Exempts it from automatic parking.
    pub pinned: bool,
    /// Actions of reap rules; for other rules those of the agent's table or of the configuration apply.
    #[serde(default)]
    pub reap: BTreeMap<Rule, Action>,
}

crate::names! {
    /// Restart policy of a session whose program ended by itself.
    #[derive(Default)]
    pub enum RestartPolicy {
        /// Never.
        #[default]
        No = "no",
        /// After an exit code other than 0, a signal, an exceeded memory limit, an end by the rules `hung` or
        /// `stale_agent`, and a later start that failed.
        OnFailure = "on-failure",
        /// After every end, including that of the tmux server or of the machine.
        Always = "always",
    } else "it is no, on-failure or always"
}

/// The budget of a session's automatic starts: restarts by policy, and wakes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// The automatic starts within the configured window, oldest first.
    pub starts: Vec<Timestamp>,
    /// Number of restarts in a row; reset to 0 after running well for a while.
    pub failures: u32,
    /// The time of the next automatic start.
    pub due_at: Option<Timestamp>,
    /// True if the budget is used up. It is not started again until a user does so.
    pub exhausted: bool,
}

/// The deadline of a drain: what still runs then is ended. An age rather than a time, so that setting the
/// clock does not move it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainDeadline {
    /// The time of the request.
    pub since: Timestamp,
    /// The time that the drain may take, in milliseconds.
    pub after_ms: u64,
}

impl DrainDeadline {
    /// The time that the drain may take.
    pub fn after(self) -> Duration {
        Duration::from_millis(self.after_ms)
    }

    /// The wall clock's time of the deadline, unless the clock is set.
    pub fn at(self) -> Timestamp {
        self.since.after(self.after())
    }
}

/// The way in which names are generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Naming {
    /// Agent, date and time: sortable; a number is appended to repeated names within a second.
    Timestamp,
    /// One more than the highest number that is a name.
    Numeric,
}

/// The treatment of a prompt whose turn fails by an outage of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailedTurn {
    /// Prompts are held, and the agent is told to continue, with growing pauses, until the service is back.
    #[default]
    Hold,
    /// The prompt is over, and the next one goes.
    Next,
    /// The prompt is sent again, up to `max_attempts` times.
    Retry,
}

/// The treatment of a prompt whose turn is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnInterrupted {
    /// The prompt is over.
    #[default]
    Dead,
    /// The prompt is sent again.
    Retry,
}
