//! The sections of the configuration file, with their defaults.

pub(crate) mod agent;

use std::collections::BTreeMap;

use protocol::reap::{Action, Rule};
use serde::{Deserialize, Serialize};

pub use crate::config::sections::agent::{AgentSection, FailedTurn, Interrupted, ScreenSection};

/// For a time that does not come.
pub(super) const NEVER: &str = "never";

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSection {
    /// How many sessions may run at once.
    pub max_sessions: usize,
    /// `timestamp` or `numeric`.
    pub naming: NamingWord,
    /// How long what asks for a session waits for a slot, where it does not say.
    pub wait_slot: String,
    /// No session is started with less memory available than that.
    pub min_free_memory: String,
    /// No session is started with less free space than that.
    pub min_free_disk: String,
    /// A session that has been idle for so long is parked, where it may be; `never`.
    pub idle_timeout: String,
    /// A program that has written nothing for so long is taken for idle.
    pub idle_quiet: String,
    /// But not before so long after it was given a prompt, as long as nothing confirms it.
    pub idle_settle: String,
    /// After an attached client typed something, prompts wait for so long.
    pub typing_pause: String,
    /// An agent that says nothing of itself is taken for ready so long after its start.
    pub ready_limit: String,
    /// What is over is removed after so long; `never`.
    pub keep_stopped: String,
    /// Archives of removed sessions are removed after so long; `never`.
    pub keep_archives: String,
    /// The control group below which each incarnation gets one of its own: `auto` for that of the tmux
    /// server where it is delegated, `off`, or the path of one.
    pub cgroup: String,
}

impl Default for PoolSection {
    fn default() -> Self {
        Self {
            max_sessions: 16,
            naming: NamingWord::Timestamp,
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

/// How names are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamingWord {
    /// Agent, date and time.
    Timestamp,
    /// The next number.
    Numeric,
}

/// `[env]`: what of the environment of whoever creates a session goes along. Names, or beginnings with `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvSection {
    /// Only these.
    pub pass: Vec<String>,
    /// But not these.
    pub drop: Vec<String>,
}

impl Default for EnvSection {
    fn default() -> Self {
        let pool::settings::Passing { pass, drop } = pool::settings::Passing::default();
        Self { pass, drop }
    }
}

/// `[tmux]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TmuxSection {
    /// `own`, `default` for the user's own server, or the path of a server's socket.
    pub socket: String,
    /// The tmux program.
    pub binary: String,
    /// The configuration of a server that the pool starts; its own minimal one where empty.
    pub config: String,
    /// Size of a new terminal, `COLSxROWS`.
    pub size: String,
    /// Lines of scrollback.
    pub history_limit: u32,
    /// Which foreign sessions are adopted without being asked for: `never`, `prefix:…` or `all`.
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
    /// Longest silence of a healthy watcher.
    pub heartbeat: String,
    /// Time between two whole listings; `auto` is by the number of panes.
    pub sweep: String,
    /// How changes are noticed: `auto`, `native`, `control` or `listings`.
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
    /// Messages of a session that are not final.
    pub max_messages: u64,
    /// Bytes of them.
    pub max_bytes: String,
    /// Messages of all sessions.
    pub pool_max_messages: u64,
    /// Bytes of them.
    pub pool_max_bytes: String,
    /// No message is taken with less free space than that.
    pub min_free_disk: String,
    /// How often a message is given out.
    pub max_attempts: u32,
    /// How long a worker may be silent about a message.
    pub lease: String,
    /// Pause before the second attempt; it doubles, up to a minute.
    pub retry_backoff: String,
    /// Failures of a kind in a row after which it is held back; 0 for never.
    pub breaker_failures: u32,
    /// Time until it is probed; it doubles, up to half an hour.
    pub breaker_pause: String,
    /// How long a message that is done, cancelled or expired is kept.
    pub keep_done: String,
    /// How long a dead one is.
    pub keep_dead: String,
    /// How many of either are kept for each session, whatever their age.
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
            keep_done: "24h".to_owned(),
            keep_dead: "30d".to_owned(),
            keep_count: 100_000,
        }
    }
}

/// `[reaper]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReaperSection {
    /// Time between two looks.
    pub interval: String,
    /// A worker that asks for nothing and was silent for longer is stale.
    pub stale_worker: String,
    /// An agent that holds a message and of which nothing was seen for so long is stale.
    pub stale_agent: String,
    /// A session that has something to do and in which nothing moves for so long hangs.
    pub hung: String,
    /// A session that has had nothing to do for so long is idle.
    pub idle_session: String,
    /// Time between TERM and KILL.
    pub grace: String,
    /// Time between the first KILL and giving up.
    pub verify: String,
    /// So many are ended by rules within a minute at most.
    pub max_kills_per_minute: u32,
    /// The command to run before something is ended: where it does not exit with 0, what a rule found is left for now.
    pub before: Vec<String>,
    /// The command to run after.
    pub after: Vec<String>,
    /// What becomes of what a rule finds: `kill`, `restart`, `park` or `report`. Where nothing is said, nobody's quiet
    /// work is ended: `hung` and `idle_session` are reported, and so is `stale_agent` where it could not take up where
    /// it was; else it is restarted. All others are ended.
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
    /// Bytes that a session's logs take on disk at most.
    pub max_size: String,
    /// Earlier parts that are kept.
    pub keep: u32,
    /// Whether they are compressed.
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
    /// Of sessions that do not say: `no`, `on-failure` or `always`.
    pub policy: String,
    /// Starts of a session by itself within the window, before it stays as it is.
    pub max: u32,
    /// The window.
    pub window: String,
    /// Pause before the first; it doubles with each failure in a row.
    pub backoff: String,
    /// The longest pause.
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
    /// Whether lost sessions are started when the daemon starts.
    pub on_start: bool,
    /// Time between two of them.
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
    /// Events that the journal keeps.
    pub keep: u64,
    /// How long it keeps them.
    pub keep_for: String,
}

impl Default for EventsSection {
    fn default() -> Self {
        Self { keep: 100_000, keep_for: "7d".to_owned() }
    }
}
