//! The documents of a session's limits, policy, restart budget, lock and resource usage.

use std::collections::BTreeMap;

use protocol::policy::{Budget, Policy, RestartPolicy};
use protocol::reap::{Action, Rule};
use protocol::reply::LockView;
use protocol::{Limits, ProcId, Timestamp, Token, Usage};
use serde::{Serialize, Serializer};

use crate::error_lines::ErrorLines;

use super::form::{forms, optional, redacted};

forms!(
    Limits => LimitsFields, Policy => PolicyFields, Budget => BudgetFields, LockView => LockFields,
    Usage => UsageFields, ErrorLines => ErrorFields,
);

/// Limits: each as a number, and all of them in the text form of the flags.
#[derive(Serialize)]
#[serde(remote = "Limits")]
struct LimitsFields {
    memory: Option<u64>,
    cpu: Option<u32>,
    tasks: Option<u32>,
    disk: Option<u64>,
    open_files: Option<u64>,
    core: Option<u64>,
    file_size: Option<u64>,
    nice: Option<i32>,
    cpus: Vec<(u16, u16)>,
    best_effort: bool,
    #[serde(getter = "ToString::to_string")]
    text: String,
}

/// A policy. A time is a number, `"never"`, or null for that of the configuration.
#[derive(Serialize)]
#[serde(remote = "Policy")]
struct PolicyFields {
    #[serde(serialize_with = "restart")]
    restart: RestartPolicy,
    max_restarts: Option<u32>,
    #[serde(serialize_with = "time")]
    idle_timeout_ms: Option<u64>,
    #[serde(serialize_with = "time")]
    ttl_ms: Option<u64>,
    #[serde(serialize_with = "time")]
    max_runtime_ms: Option<u64>,
    ephemeral: bool,
    pinned: bool,
    reap: BTreeMap<Rule, Action>,
}

fn restart<S: Serializer>(policy: &RestartPolicy, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(policy.as_str())
}

fn time<S: Serializer>(ms: &Option<u64>, s: S) -> Result<S::Ok, S::Error> {
    if *ms == Some(u64::MAX) { s.serialize_str("never") } else { ms.serialize(s) }
}

#[derive(Serialize)]
#[serde(remote = "Budget")]
struct BudgetFields {
    #[serde(rename = "restarts_in_window", serialize_with = "count")]
    starts: Vec<Timestamp>,
    failures: u32,
    #[serde(serialize_with = "optional")]
    due_at: Option<Timestamp>,
    exhausted: bool,
}

fn count<S: Serializer>(times: &[Timestamp], s: S) -> Result<S::Ok, S::Error> {
    times.len().serialize(s)
}

#[derive(Serialize)]
#[serde(remote = "LockView")]
struct LockFields {
    token: Token,
    #[serde(serialize_with = "redacted")]
    purpose: String,
    #[serde(getter = "holder")]
    holder: Option<Process>,
    #[serde(serialize_with = "optional")]
    since: Option<Timestamp>,
    #[serde(serialize_with = "optional")]
    expires_at: Option<Timestamp>,
    inner: Option<String>,
    waiting: u64,
}

/// A process with the keys that it has in the document of a session.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pid: u32,
    start_time: u64,
}

impl From<ProcId> for Process {
    fn from(process: ProcId) -> Self {
        Self { pid: process.pid, start_time: process.start }
    }
}

fn holder(lock: &LockView) -> Option<Process> {
    lock.holder.map(Process::from)
}

/// Error lines.
#[derive(Serialize)]
#[serde(remote = "ErrorLines")]
struct ErrorFields {
    count: u64,
    last: Option<String>,
    #[serde(serialize_with = "optional")]
    last_at: Option<Timestamp>,
}

/// Resource usage. The origin of `memory` is null if no process runs.
#[derive(Serialize)]
#[serde(remote = "Usage")]
struct UsageFields {
    processes: u32,
    memory: u64,
    #[serde(serialize_with = "unless_empty")]
    memory_by: String,
    cpu_us: u64,
    cpu_percent: Option<u32>,
    disk: Option<u64>,
    log: Option<u64>,
}

fn unless_empty<S: Serializer>(text: &str, s: S) -> Result<S::Ok, S::Error> {
    Some(text).filter(|text| !text.is_empty()).serialize(s)
}
