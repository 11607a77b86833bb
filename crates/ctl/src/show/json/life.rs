//! What bounds a session and what becomes of it, as JSON.

use std::collections::BTreeMap;

use protocol::limits::Limits;
use protocol::policy::{Budget, Policy};
use protocol::reap::{Action, Rule};
use protocol::redact;
use protocol::reply::LockView;
use protocol::usage::Usage;
use serde::Serialize;
use serde_json::{Value, json};

use crate::show::time::rfc3339;

/// Limits: each with its number, and all of them as they are written in flags.
#[derive(Debug, Serialize)]
pub(crate) struct LimitsJson<'a> {
    #[serde(flatten)]
    limits: &'a Limits,
    text: String,
}

impl<'a> LimitsJson<'a> {
    /// The document of these.
    #[must_use]
    pub(crate) fn new(limits: &'a Limits) -> Self {
        Self { limits, text: limits.to_string() }
    }
}

/// A policy; of its times `"never"` is never, and null what the configuration says.
#[derive(Debug, Serialize)]
pub(crate) struct PolicyJson {
    restart: &'static str,
    max_restarts: Option<u32>,
    idle_timeout_ms: Value,
    ttl_ms: Value,
    max_runtime_ms: Value,
    ephemeral: bool,
    pinned: bool,
    reap: BTreeMap<Rule, Action>,
}

impl PolicyJson {
    /// The document of this.
    #[must_use]
    pub(crate) fn new(policy: &Policy) -> Self {
        Self {
            restart: policy.restart.as_str(),
            max_restarts: policy.max_restarts,
            idle_timeout_ms: time(policy.idle_timeout_ms),
            ttl_ms: time(policy.ttl_ms),
            max_runtime_ms: time(policy.max_runtime_ms),
            ephemeral: policy.ephemeral,
            pinned: policy.pinned,
            reap: policy.reap.clone(),
        }
    }
}

fn time(ms: Option<u64>) -> Value {
    match ms {
        Some(u64::MAX) => json!("never"),
        ms => json!(ms),
    }
}

/// The starts that nobody asked for by name.
#[derive(Debug, Serialize)]
pub(crate) struct BudgetJson {
    restarts_in_window: usize,
    failures: u32,
    due_at: Option<String>,
    exhausted: bool,
}

impl BudgetJson {
    /// The document of this.
    #[must_use]
    pub(crate) fn new(budget: &Budget) -> Self {
        Self {
            restarts_in_window: budget.starts.len(),
            failures: budget.failures,
            due_at: budget.due_at.map(rfc3339),
            exhausted: budget.exhausted,
        }
    }
}

/// Who holds a session's lock.
#[derive(Debug, Serialize)]
pub(crate) struct LockJson<'a> {
    token: String,
    purpose: String,
    holder: Option<Holder>,
    since: Option<String>,
    expires_at: Option<String>,
    inner: Option<&'a str>,
    waiting: u64,
}

#[derive(Debug, Serialize)]
struct Holder {
    pid: u32,
    start_time: u64,
}

impl<'a> LockJson<'a> {
    /// The document of this.
    #[must_use]
    pub(crate) fn new(lock: &'a LockView) -> Self {
        Self {
            token: lock.token.to_string(),
            purpose: redact::text(&lock.purpose),
            holder: lock.holder.map(|holder| Holder { pid: holder.pid, start_time: holder.start }),
            since: lock.since.map(rfc3339),
            expires_at: lock.expires_at.map(rfc3339),
            inner: lock.inner.as_deref(),
            waiting: lock.waiting,
        }
    }
}

/// What a session's processes use; who measured their memory is null where there are none.
#[derive(Debug, Serialize)]
pub(crate) struct UsageJson<'a> {
    processes: u32,
    memory: u64,
    memory_by: Option<&'a str>,
    cpu_us: u64,
    cpu_percent: Option<u32>,
    disk: Option<u64>,
    log: Option<u64>,
}

impl<'a> UsageJson<'a> {
    /// The document of this.
    #[must_use]
    pub(crate) fn new(usage: &'a Usage) -> Self {
        Self {
            processes: usage.processes,
            memory: usage.memory,
            memory_by: Some(usage.memory_by.as_str()).filter(|by| !by.is_empty()),
            cpu_us: usage.cpu_us,
            cpu_percent: usage.cpu_percent,
            disk: usage.disk,
            log: usage.log,
        }
    }
}
