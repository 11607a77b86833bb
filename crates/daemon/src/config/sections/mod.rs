//! The sections of the configuration file, with their defaults.

pub(crate) mod agent;
pub(crate) mod worker;

use std::collections::BTreeMap;

use protocol::policy::Naming;
use protocol::reap::{Action, Rule};
use serde::{Deserialize, Serialize};

pub use crate::config::sections::agent::{AgentSection, ScreenSection};
pub use crate::config::sections::worker::WorkerSection;

/// The value of a time that never comes.
pub(super) const NEVER: &str = "never";

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSection {
    /// Maximum number of sessions that run at once.
    pub max_sessions: usize,
    /// Maximum number of messages that workers of the pool have in work at once, each with a process: a cap
    /// over all `[workers.NAME]`.
    pub max_processes: usize,
    /// The way names of new sessions are made: `timestamp` (agent, date and time) or `numeric` (the next
    /// number).
    pub naming: Naming,
    /// Time for which a request waits for a slot, unless it says otherwise.
    pub wait_slot: String,
    /// Available memory below which no session is started.
    pub min_free_memory: String,
    /// Free disk space below which no session is started.
    pub min_free_disk: String,
    /// Idle time after which a session is parked, if nothing is lost by it; `never` for no parking by age.
    pub idle_timeout: String,
    /// Silence after which a program without hooks counts as idle.
    pub idle_quiet: String,
    /// Minimum time after an unconfirmed prompt before silence counts as idle.
    pub idle_settle: String,
    /// Time for which prompts wait after an attached client typed something.
    pub typing_pause: String,
    /// Time after its start when an agent that reports nothing counts as ready.
    pub ready_limit: String,
    /// Age at which ended sessions are removed; `never`.
    pub keep_stopped: String,
    /// Age at which archives of removed sessions are deleted; `never`.
    pub keep_archives: String,
    /// Control group below which each incarnation gets one of its own: `auto` (that of the tmux server, if it
    /// is delegated), `off`, or an absolute path.
    pub cgroup: String,
}

impl Default for PoolSection {
    fn default() -> Self {
        Self {
            max_sessions: 16,
            max_processes: 10,
            naming: Naming::Timestamp,
            wait_slot: "0s".to_owned(),
            min_free_memory: "1GiB".to_owned(),
            min_free_disk: "2GiB".to_owned(),
            idle_timeout: NEVER.to_owned(),
            idle_quiet: "5s".to_owned(),
            idle_settle: "30s".to_owned(),
            typing_pause: "5s".to_owned(),
            ready_limit: "30s".to_owned(),
            keep_stopped: "30d".to_owned(),
            keep_archives: NEVER.to_owned(),
            cgroup: "auto".to_owned(),
        }
    }
}

/// `[env]`: the caller's environment variables that a new session gets. Names, or prefixes followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvSection {
    /// Variables that are passed on.
    pub pass: Vec<String>,
    /// Variables that are not passed on although `pass` names them.
    pub drop: Vec<String>,
}

impl Default for EnvSection {
    fn default() -> Self {
        let pool::EnvFilter { pass, drop } = pool::EnvFilter::default();
        Self { pass, drop }
    }
}

/// `[tmux]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TmuxSection {
    /// The server's socket: `own` for a server of the pool, `default` for the user's own server, or an
    /// absolute path.
    pub socket: String,
    /// The tmux program.
    pub binary: String,
    /// Configuration file of a server that the pool starts; if empty, the pool's minimal one.
    pub config: String,
    /// Size of a new terminal, `COLSxROWS`.
    pub size: String,
    /// Lines of scrollback of each pane.
    pub history_limit: u32,
    /// Foreign sessions that are adopted automatically: `never`, `prefix:…` or `all`.
    pub adopt: String,
}

impl Default for TmuxSection {
    fn default() -> Self {
        Self {
            socket: "own".to_owned(),
            binary: "tmux".to_owned(),
            config: String::new(),
            size: "200x50".to_owned(),
            history_limit: 50_000,
            adopt: "never".to_owned(),
        }
    }
}

/// `[watch]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchSection {
    /// Interval of the watcher's signs of life. It is healthy until it was silent for five of them,
    /// and for 10 s at least.
    pub heartbeat: String,
    /// Time between two complete listings of tmux; `auto` derives it from the number of panes.
    pub sweep: String,
    /// The way changes in tmux are noticed: `auto`, `native`, `control` or `listings`.
    pub connection: String,
}

impl Default for WatchSection {
    fn default() -> Self {
        Self { heartbeat: "2s".to_owned(), sweep: "auto".to_owned(), connection: "auto".to_owned() }
    }
}

/// `[queue]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSection {
    /// Maximum number of unfinished messages of a session.
    pub max_messages: u64,
    /// Maximum bytes of a session's unfinished messages.
    pub max_bytes: String,
    /// Maximum number of unfinished messages of all sessions.
    pub pool_max_messages: u64,
    /// Maximum bytes of all sessions' unfinished messages.
    pub pool_max_bytes: String,
    /// Free disk space below which no message is accepted.
    pub min_free_disk: String,
    /// Maximum number of attempts of a message.
    pub max_attempts: u32,
    /// Time for which a claim holds without a heartbeat, from 1s to 24h.
    pub lease: String,
    /// Pause before the second attempt; it doubles with each further one, up to a minute.
    pub retry_backoff: String,
    /// Consecutive failures of a kind of messages after which it is held back; 0 for never.
    pub breaker_failures: u32,
    /// Time until a kind that is held back is probed; it doubles, up to half an hour.
    pub breaker_pause: String,
    /// Time for which the messages of a kind may stand still before that is a problem; `never`.
    pub stuck_after: String,
    /// Treatment of a prompt if it is unknown whether it arrived: `hold` (it waits for a person) or `dead` (it
    /// is given up, and those behind it go on).
    pub in_doubt: DoubtRule,
    /// Age up to which a done, cancelled or expired message is kept; at least 10 minutes.
    pub keep_done: String,
    /// Age up to which a dead message is kept.
    pub keep_dead: String,
    /// Maximum number of finished messages kept for each session, whatever their age.
    pub keep_count: u64,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self {
            max_messages: 10_000,
            max_bytes: "64MiB".to_owned(),
            pool_max_messages: 1_000_000,
            pool_max_bytes: "4GiB".to_owned(),
            min_free_disk: "64MiB".to_owned(),
            max_attempts: 5,
            lease: "60s".to_owned(),
            retry_backoff: "1s".to_owned(),
            breaker_failures: 3,
            breaker_pause: "1m".to_owned(),
            stuck_after: "10m".to_owned(),
            in_doubt: DoubtRule::Hold,
            keep_done: "24h".to_owned(),
            keep_dead: "30d".to_owned(),
            keep_count: 100_000,
        }
    }
}

/// The treatment of a prompt in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DoubtRule {
    /// It waits for a person.
    Hold,
    /// It is given up.
    Dead,
}

/// `[reaper]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReaperSection {
    /// Time between two rounds of the rules.
    pub interval: String,
    /// Silence after which a worker that is not waiting for messages counts as stale, or the host of one that has not
    /// registered. A host that reconnects may pause for 5 s.
    pub stale_worker: String,
    /// Time without a sign of life after which an agent with a prompt counts as stale.
    pub stale_agent: String,
    /// Time without any activity after which a session that has work counts as hung.
    pub hung: String,
    /// Time without work after which a session counts as idle.
    pub idle_session: String,
    /// Share of the machine's memory in use above which it is short of memory; `never` for no limit.
    pub host_memory: String,
    /// The same for the share of the last 10 s in which programs waited for memory (Linux, `some avg10` of
    /// `/proc/pressure/memory`).
    pub host_memory_pressure: String,
    /// Share of the state directory's disk in use above which the machine is short of disk; `never` for no
    /// limit.
    pub host_disk: String,
    /// Time between TERM and KILL.
    pub grace: String,
    /// Time between the first KILL and giving up.
    pub verify: String,
    /// Maximum number of kills by rules within a minute.
    pub max_kills_per_minute: u32,
    /// Command to run before something is ended. If it fails, what a rule found is left for now.
    pub before: Vec<String>,
    /// Command to run after something was ended.
    pub after: Vec<String>,
    /// The action of each rule: `kill`, `restart`, `park` or `report`. By default `hung` and `idle_session`
    /// report, so that no quiet work is ended, and `host_memory` and `host_disk`, which may also park;
    /// `stale_agent` restarts agents that can resume and reports others; all other rules kill.
    pub policy: BTreeMap<Rule, Action>,
}

impl Default for ReaperSection {
    fn default() -> Self {
        Self {
            interval: "5s".to_owned(),
            stale_worker: "5m".to_owned(),
            stale_agent: "30m".to_owned(),
            hung: "10m".to_owned(),
            idle_session: "15m".to_owned(),
            host_memory: "90%".to_owned(),
            host_memory_pressure: NEVER.to_owned(),
            host_disk: "95%".to_owned(),
            grace: "5s".to_owned(),
            verify: "5s".to_owned(),
            max_kills_per_minute: 30,
            before: Vec::new(),
            after: Vec::new(),
            policy: BTreeMap::new(),
        }
    }
}

/// `[logs]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogsSection {
    /// Maximum bytes on disk of each log of a session, from its next start; a standard error that is kept apart has one
    /// of its own.
    pub max_size: String,
    /// Number of earlier parts of a log that are kept, 1 to 100.
    pub keep: u32,
    /// True to compress earlier parts.
    pub compress: bool,
}

impl Default for LogsSection {
    fn default() -> Self {
        Self { max_size: "32MiB".to_owned(), keep: 4, compress: true }
    }
}

/// `[restart]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestartSection {
    /// Restart policy of sessions that have none of their own: `no`, `on-failure` or `always`.
    pub policy: String,
    /// Maximum number of automatic starts of a session within the window.
    pub max: u32,
    /// The window for `max`.
    pub window: String,
    /// Pause before the first automatic start; it doubles with each failure in a row.
    pub backoff: String,
    /// Maximum pause.
    pub backoff_max: String,
}

impl Default for RestartSection {
    fn default() -> Self {
        Self {
            policy: "no".to_owned(),
            max: 10,
            window: "10m".to_owned(),
            backoff: "1s".to_owned(),
            backoff_max: "5m".to_owned(),
        }
    }
}

/// `[restore]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RestoreSection {
    /// True to start lost sessions when the daemon starts.
    pub on_start: bool,
    /// Time between two of these starts.
    pub spacing: String,
}

impl Default for RestoreSection {
    fn default() -> Self {
        Self { on_start: false, spacing: "1s".to_owned() }
    }
}

/// `[events]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsSection {
    /// Maximum number of events in the journal.
    pub keep: u64,
    /// Maximum age of events in the journal.
    pub keep_for: String,
}

impl Default for EventsSection {
    fn default() -> Self {
        Self { keep: 100_000, keep_for: "7d".to_owned() }
    }
}
