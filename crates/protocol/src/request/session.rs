//! Requests about the lifecycle of sessions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;
use crate::policy::RestartPolicy;
use crate::reap::{Action, Rule};
use crate::session::Size;
use crate::text::{OsBytes, SessionRef};

/// `new`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct New {
    /// The name; generated if absent.
    pub name: Option<String>,
    /// The workspace; defaults to the name.
    pub workspace: Option<String>,
    /// The agent kind; defaults to `shell`, or to none if a command is given.
    pub agent: Option<String>,
    /// The program and its arguments; defaults to the agent's.
    pub command: Vec<OsBytes>,
    /// The working directory; defaults to the caller's, else to the session's own `work/`.
    pub cwd: Option<OsBytes>,
    /// Additions to the environment.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// The caller's environment. The configuration decides which variables are inherited; see [`crate::env`].
    pub caller_env: Vec<(OsBytes, OsBytes)>,
    /// The caller's working directory.
    pub caller_cwd: Option<OsBytes>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Terminal size; defaults to the configuration's.
    pub size: Option<Size>,
    /// Returns the existing session of this workspace, and starts it if it does not run.
    pub reuse: bool,
    /// Resource limits in addition to those of the agent's table.
    pub limits: Limits,
    /// The restart policy; defaults to the configuration's.
    pub restart: Option<RestartPolicy>,
    /// See [`crate::policy::Policy::max_restarts`].
    pub max_restarts: Option<u32>,
    /// See [`crate::policy::Policy::idle_timeout_ms`].
    pub idle_timeout_ms: Option<u64>,
    /// See [`crate::policy::Policy::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// See [`crate::policy::Policy::max_runtime_ms`].
    pub max_runtime_ms: Option<u64>,
    /// Removes the session as soon as its program ends.
    pub ephemeral: bool,
    /// Exempts the session from automatic parking.
    pub pinned: bool,
    /// Maximum waiting time for a slot, in milliseconds; defaults to the configuration's.
    pub wait_slot_ms: Option<u64>,
    /// The first message, queued together with the record.
    pub prompt: Option<OsBytes>,
    /// See [`crate::policy::Policy::reap`].
    pub reap: BTreeMap<Rule, Action>,
    /// See [`crate::Spec::separate_stderr`].
    #[serde(default)]
    pub separate_stderr: bool,
}

/// `adopt`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Adopt {
    /// A pane (`%3`), or a tmux session with a single pane by its id (`$3`) or exact name.
    pub target: String,
    /// The workspace; defaults to the name.
    pub workspace: Option<String>,
    /// True if the log may take the place of a command that the pane's output is piped to.
    #[serde(default)]
    pub replace_pipe: bool,
}

/// `rename`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rename {
    /// The session.
    pub session: SessionRef,
    /// The new name.
    pub name: String,
}

/// `label`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Label {
    /// The session.
    pub session: SessionRef,
    /// Labels to set.
    pub set: BTreeMap<String, String>,
    /// Labels to remove.
    pub remove: Vec<String>,
}

/// `update`. Absent values stay unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Update {
    /// The session.
    pub session: SessionRef,
    /// See [`crate::policy::Policy::restart`].
    pub restart: Option<RestartPolicy>,
    /// See [`crate::policy::Policy::max_restarts`].
    pub max_restarts: Option<u32>,
    /// See [`crate::policy::Policy::idle_timeout_ms`].
    pub idle_timeout_ms: Option<u64>,
    /// See [`crate::policy::Policy::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// See [`crate::policy::Policy::max_runtime_ms`].
    pub max_runtime_ms: Option<u64>,
    /// Actions of reap rules; `None` restores the default of the agent's table or the configuration.
    pub reap: BTreeMap<Rule, Option<Action>>,
}

/// `pin` and `unpin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The session.
    pub session: SessionRef,
    /// True to exempt the session from automatic parking.
    pub pinned: bool,
}

/// `restart`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Restart {
    /// The session.
    pub session: SessionRef,
    /// Time between TERM and KILL, in milliseconds; defaults to the configuration's.
    pub grace_ms: Option<u64>,
    /// Begins a new conversation instead of resuming the last one.
    pub fresh: bool,
    /// Empties the log between the two incarnations.
    #[serde(default)]
    pub clear: bool,
    /// Maximum waiting time for a slot, in milliseconds; defaults to the configuration's.
    pub wait_slot_ms: Option<u64>,
}

/// `reset --soft`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearContext {
    /// The session.
    pub session: SessionRef,
    /// The origin of the message.
    pub origin: String,
}

/// `kill`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kill {
    /// The session.
    pub session: SessionRef,
    /// Time between TERM and KILL, in milliseconds; defaults to the configuration's.
    pub grace_ms: Option<u64>,
}

/// `park`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// The session.
    pub session: SessionRef,
    /// Parks the session even with messages in flight or a client attached.
    pub force: bool,
    /// Time between TERM and KILL, in milliseconds; defaults to the configuration's.
    pub grace_ms: Option<u64>,
}

/// `drain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    /// The session.
    pub session: SessionRef,
    /// The time after which what still runs is ended, in milliseconds. Without one, an earlier deadline stays.
    pub deadline_ms: Option<u64>,
}

/// `restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// The session. If absent, all lost sessions are started one after the other.
    pub session: Option<SessionRef>,
    /// Maximum waiting time for a slot, in milliseconds; defaults to the configuration's.
    pub wait_slot_ms: Option<u64>,
}

/// `rm`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Remove {
    /// The session.
    pub session: SessionRef,
    /// Removes only the record; the tmux session continues to run.
    pub keep_tmux: bool,
    /// Removes the session even with messages in flight or a client attached.
    pub force: bool,
    /// Also removes the session's directory.
    pub purge: bool,
    /// Writes an archive first and verifies it.
    pub archive: bool,
    /// Only if the session is stopped or failed.
    #[serde(default)]
    pub only_ended: bool,
}

/// `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prune {
    /// Minimum time since the end of a session, in milliseconds.
    pub older_ms: u64,
    /// Archives each session before its removal.
    pub archive: bool,
    /// Also removes the `work/` directories.
    pub purge: bool,
    /// Only reports what would be removed.
    pub dry_run: bool,
}
