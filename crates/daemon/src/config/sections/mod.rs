//! The sections of the configuration file, with their defaults.

/// Defines sections, each field with its default. `tests/manual.rs` reads the fields, one a line, for the manual.
macro_rules! sections {
    ($(
        $(#[$doc:meta])*
        pub struct $name:ident {$( $(#[$of:meta])* pub $field:ident: $type:ty = $default:expr, )+}
    )+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {$(
            $(#[$of])*
            pub $field: $type,
        )+}

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default),+ }
            }
        }
    )+};
}

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

sections! {
    /// `[pool]`
    pub struct PoolSection {
        /// Maximum number of sessions that run at once.
        pub max_sessions: usize = 16,
        /// Maximum number of messages that workers of the pool have in work at once, each with a process: a cap
        /// over all `[workers.NAME]`.
        pub max_processes: usize = 10,
        /// The way names of new sessions are made: `timestamp` (agent, date and time) or `numeric` (the next
        /// number).
        pub naming: Naming = Naming::Timestamp,
        /// Time for which a request waits for a slot, unless it says otherwise.
        pub wait_slot: String = "0s".to_owned(),
        /// Available memory below which no session is started.
        pub min_free_memory: String = "1GiB".to_owned(),
        /// Free disk space below which no session is started. 1,000 inodes are kept too, unless it is 0.
        pub min_free_disk: String = "2GiB".to_owned(),
        /// Idle time after which a session is parked, if nothing is lost by it; `never` for no parking by age.
        pub idle_timeout: String = NEVER.to_owned(),
        /// Silence after which a program without hooks counts as idle.
        pub idle_quiet: String = "5s".to_owned(),
        /// Minimum time after an unconfirmed prompt before silence counts as idle.
        pub idle_settle: String = "30s".to_owned(),
        /// Time for which prompts wait after an attached client typed something.
        pub typing_pause: String = "5s".to_owned(),
        /// Time after its start when an agent that reports nothing counts as ready.
        pub ready_limit: String = "30s".to_owned(),
        /// Age at which ended sessions are removed; `never`.
        pub keep_stopped: String = "30d".to_owned(),
        /// Age at which archives of removed sessions are deleted; `never`.
        pub keep_archives: String = NEVER.to_owned(),
        /// Control group below which each incarnation gets one of its own: `auto` (that of the tmux server, if it
        /// is delegated), `off`, or an absolute path.
        pub cgroup: String = "auto".to_owned(),
    }

    /// `[env]`: the caller's environment variables that a new session gets. Names, or prefixes followed by `*`.
    pub struct EnvSection {
        /// Variables that are passed on.
        pub pass: Vec<String> = pool::EnvFilter::default().pass,
        /// Variables that are not passed on although `pass` names them.
        pub drop: Vec<String> = pool::EnvFilter::default().drop,
    }

    /// `[tmux]`
    pub struct TmuxSection {
        /// The server's socket: `own` for a server of the pool, `default` for the user's own server, or an
        /// absolute path.
        pub socket: String = "own".to_owned(),
        /// The tmux program.
        pub binary: String = "tmux".to_owned(),
        /// Configuration file of a server that the pool starts; if empty, the pool's minimal one.
        pub config: String = String::new(),
        /// Size of a new terminal, `COLSxROWS`.
        pub size: String = "200x50".to_owned(),
        /// Lines of scrollback of each pane.
        pub history_limit: u32 = 50_000,
        /// Foreign sessions that are adopted automatically: `never`, `prefix:…` or `all`.
        pub adopt: String = "never".to_owned(),
    }

    /// `[watch]`
    pub struct WatchSection {
        /// Interval of the watcher's signs of life. It is healthy until it was silent for five of them,
        /// and for 10 s at least.
        pub heartbeat: String = "2s".to_owned(),
        /// Time between two complete listings of tmux; `auto` derives it from the number of panes.
        pub sweep: String = "auto".to_owned(),
        /// The way changes in tmux are noticed: `auto`, `native`, `control` or `listings`.
        pub connection: String = "auto".to_owned(),
    }

    /// `[queue]`
    pub struct QueueSection {
        /// Maximum number of unfinished messages of a session.
        pub max_messages: u64 = 10_000,
        /// Maximum bytes of a session's unfinished messages.
        pub max_bytes: String = "64MiB".to_owned(),
        /// Maximum number of unfinished messages of all sessions.
        pub pool_max_messages: u64 = 1_000_000,
        /// Maximum bytes of all sessions' unfinished messages.
        pub pool_max_bytes: String = "4GiB".to_owned(),
        /// Free disk space below which no message is accepted.
        pub min_free_disk: String = "64MiB".to_owned(),
        /// Maximum number of attempts of a message.
        pub max_attempts: u32 = 5,
        /// Time for which a claim holds without a heartbeat, from 1s to 24h.
        pub lease: String = "60s".to_owned(),
        /// Pause before the second attempt; it doubles with each further one, up to a minute.
        pub retry_backoff: String = "1s".to_owned(),
        /// Consecutive failures of a kind of messages after which it is held back; 0 for never.
        pub breaker_failures: u32 = 3,
        /// Time until a kind that is held back is probed; it doubles, up to half an hour.
        pub breaker_pause: String = "1m".to_owned(),
        /// Time for which the messages of a kind may stand still before that is a problem; `never`.
        pub stuck_after: String = "10m".to_owned(),
        /// Treatment of a prompt if it is unknown whether it arrived: `hold` (it waits for a person) or `dead` (it
        /// is given up, and those behind it go on).
        pub in_doubt: DoubtRule = DoubtRule::Hold,
        /// Age up to which a done, cancelled or expired message is kept; at least 10 minutes.
        pub keep_done: String = "24h".to_owned(),
        /// Age up to which a dead message is kept.
        pub keep_dead: String = "30d".to_owned(),
        /// Maximum number of finished messages kept for each session, whatever their age.
        pub keep_count: u64 = 100_000,
    }

    /// `[reaper]`
    pub struct ReaperSection {
        /// Time between two rounds of the rules.
        pub interval: String = "5s".to_owned(),
        /// Silence after which a worker that is not waiting for messages counts as stale, or the host of one that has
        /// not registered. A host that reconnects may pause for 5 s.
        pub stale_worker: String = "5m".to_owned(),
        /// Time without a sign of life after which an agent with a prompt counts as stale.
        pub stale_agent: String = "30m".to_owned(),
        /// Time without any activity after which a session that has work counts as hung.
        pub hung: String = "10m".to_owned(),
        /// Time without work after which a session counts as idle.
        pub idle_session: String = "15m".to_owned(),
        /// Share of the machine's memory in use above which it is short of memory; `never` for no limit.
        pub host_memory: String = "90%".to_owned(),
        /// The same for the share of the last 10 s in which programs waited for memory (Linux, `some avg10` of
        /// `/proc/pressure/memory`).
        pub host_memory_pressure: String = NEVER.to_owned(),
        /// Share of the state directory's disk in use above which the machine is short of disk; `never` for no
        /// limit.
        pub host_disk: String = "95%".to_owned(),
        /// Time between TERM and KILL.
        pub grace: String = "5s".to_owned(),
        /// Time between the first KILL and giving up.
        pub verify: String = "5s".to_owned(),
        /// Maximum number of kills by rules within a minute.
        pub max_kills_per_minute: u32 = 30,
        /// Command to run before something is ended. If it fails, what a rule found is left for now.
        pub before: Vec<String> = Vec::new(),
        /// Command to run after something was ended.
        pub after: Vec<String> = Vec::new(),
        /// The action of each rule: `kill`, `restart`, `park` or `report`. By default `hung` and `idle_session`
        /// report, so that no quiet work is ended, and `host_memory` and `host_disk`, which may also park;
        /// `stale_agent` restarts agents that can resume and reports others; all other rules kill.
        pub policy: BTreeMap<Rule, Action> = BTreeMap::new(),
    }

    /// `[logs]`
    pub struct LogsSection {
        /// Maximum bytes on disk of each log of a session, from its next start; a standard error that is kept apart has
        /// one of its own.
        pub max_size: String = "32MiB".to_owned(),
        /// Number of earlier parts of a log that are kept, 1 to 100.
        pub keep: u32 = 4,
        /// True to compress earlier parts.
        pub compress: bool = true,
    }

    /// `[restart]`
    pub struct RestartSection {
        /// Restart policy of sessions that have none of their own: `no`, `on-failure` or `always`.
        pub policy: String = "no".to_owned(),
        /// Maximum number of automatic starts of a session within the window.
        pub max: u32 = 10,
        /// The window for `max`.
        pub window: String = "10m".to_owned(),
        /// Pause before the first automatic start; it doubles with each failure in a row.
        pub backoff: String = "1s".to_owned(),
        /// Maximum pause.
        pub backoff_max: String = "5m".to_owned(),
    }

    /// `[restore]`
    pub struct RestoreSection {
        /// True to start lost sessions when the daemon starts.
        pub on_start: bool = false,
        /// Time between two of these starts.
        pub spacing: String = "1s".to_owned(),
    }

    /// `[events]`
    pub struct EventsSection {
        /// Maximum number of events in the journal.
        pub keep: u64 = 100_000,
        /// Maximum age of events in the journal.
        pub keep_for: String = "7d".to_owned(),
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
