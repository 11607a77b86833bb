//! The sections of the configuration file, with their defaults.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSection {
    /// How many sessions may run at once.
    pub max_sessions: usize,
    /// `timestamp` or `numeric`.
    pub naming: NamingWord,
}

impl Default for PoolSection {
    fn default() -> Self {
        Self { max_sessions: 16, naming: NamingWord::Timestamp }
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
    /// How long a final message is kept.
    pub keep_done: String,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self { max_messages: 10_000, max_bytes: "64MiB".to_owned(), keep_done: "24h".to_owned() }
    }
}

/// `[reaper]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReaperSection {
    /// Time between TERM and KILL.
    pub grace: String,
}

impl Default for ReaperSection {
    fn default() -> Self {
        Self { grace: "5s".to_owned() }
    }
}

/// `[events]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsSection {
    /// Events that the journal keeps.
    pub keep: u64,
}

impl Default for EventsSection {
    fn default() -> Self {
        Self { keep: 100_000 }
    }
}

/// `[agents.NAME]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// The program; the caller's shell where empty.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// Whether it sees the tmux it runs in.
    pub see_tmux: bool,
}
