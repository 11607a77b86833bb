//! What is asked of a session's life: its creation, and what becomes of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::life::{Limits, RestartPolicy};
use crate::reap::{Action, Rule};
use crate::session::Size;
use crate::text::{OsBytes, SessionRef};

/// `new`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct New {
    /// The name; without one the pool makes it.
    pub name: Option<String>,
    /// The workspace; defaults to the name.
    pub workspace: Option<String>,
    /// The agent kind; defaults to `shell`, or to none where a command is given.
    pub agent: Option<String>,
    /// The program and arguments; defaults to the agent's.
    pub command: Vec<OsBytes>,
    /// The directory; defaults to the caller's, and without that to the session's own `work/`.
    pub cwd: Option<OsBytes>,
    /// Added to the environment.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// The caller's environment, of which the configuration says what is passed on; see [`crate::env`].
    pub caller_env: Vec<(OsBytes, OsBytes)>,
    /// The caller's directory, where no other is asked for.
    pub caller_cwd: Option<OsBytes>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Terminal size; defaults to the configuration's.
    pub size: Option<Size>,
    /// Take the session of this workspace if there is one; start it if it does not run.
    pub reuse: bool,
    /// What bounds it, beside what its agent's table says.
    pub limits: Limits,
    /// Whether it is started again when it ends; the configuration's policy where nothing is said.
    pub restart: Option<RestartPolicy>,
    /// See [`crate::life::Policy::max_restarts`].
    pub max_restarts: Option<u32>,
    /// See [`crate::life::Policy::idle_timeout_ms`].
    pub idle_timeout_ms: Option<u64>,
    /// See [`crate::life::Policy::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// See [`crate::life::Policy::max_runtime_ms`].
    pub max_runtime_ms: Option<u64>,
    /// Removed as soon as it is over.
    pub ephemeral: bool,
    /// Never parked by itself.
    pub pinned: bool,
    /// How long to wait for a slot, in milliseconds; the configuration's time where nothing is said.
    pub wait_slot_ms: Option<u64>,
    /// Its first message, queued with the record itself.
    pub prompt: Option<OsBytes>,
    /// See [`crate::life::Policy::reap`].
    pub reap: BTreeMap<Rule, Action>,
}

/// `park`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Park {
    /// Which session.
    pub session: SessionRef,
    /// Even with work in flight or a client attached.
    pub force: bool,
    /// Time between TERM and KILL, in milliseconds; the configuration's where nothing is said.
    pub grace_ms: Option<u64>,
}

/// `restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restore {
    /// Which session; none for all that were lost, which are then started one after the other.
    pub session: Option<SessionRef>,
    /// How long to wait for a slot, in milliseconds; the configuration's time where nothing is said.
    pub wait_slot_ms: Option<u64>,
}

/// `pin` and `unpin`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Which session.
    pub session: SessionRef,
    /// Whether it is never to be parked by itself.
    pub pinned: bool,
}

/// `prune`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prune {
    /// Only what has been over for this long, in milliseconds.
    pub older_ms: u64,
    /// Archive each before it is removed.
    pub archive: bool,
    /// The `work/` directories too.
    pub purge: bool,
    /// Only say what would be removed.
    pub dry_run: bool,
}

/// `lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// Which session.
    pub session: SessionRef,
    /// What for, for people: the command.
    pub purpose: String,
    /// How long to wait for it, in milliseconds; for as long as it takes where nothing is said.
    pub wait_ms: Option<u64>,
    /// How long the holder may be silent, in milliseconds; 60 s where nothing is said.
    pub lease_ms: Option<u64>,
    /// Take it away from whoever holds it, and before all who wait.
    pub force: bool,
}

/// `update`: what is not said stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// Which session.
    pub session: SessionRef,
    /// See [`crate::life::Policy::restart`].
    pub restart: Option<RestartPolicy>,
    /// See [`crate::life::Policy::max_restarts`].
    pub max_restarts: Option<u32>,
    /// See [`crate::life::Policy::idle_timeout_ms`].
    pub idle_timeout_ms: Option<u64>,
    /// See [`crate::life::Policy::ttl_ms`].
    pub ttl_ms: Option<u64>,
    /// See [`crate::life::Policy::max_runtime_ms`].
    pub max_runtime_ms: Option<u64>,
    /// Rules and what becomes of it; none: as its agent's table and the configuration say.
    pub reap: BTreeMap<Rule, Option<Action>>,
}
