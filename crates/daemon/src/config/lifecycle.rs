//! What the configuration says of the lives of sessions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pool::{ReapRules, RestartRules};
use protocol::OsBytes;
use protocol::reap::{Action, Rule};

use crate::config::file::Config;
use crate::config::sections::NEVER;
use crate::config::values::{ConfigError, bytes, duration, wrong};

/// What the shell does with sessions beyond what the core decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Life {
    /// How long what asks for a session waits for a slot, where it does not say.
    pub(crate) wait_slot: Duration,
    /// No session is started with less memory available than that, in bytes.
    pub(crate) min_free_memory: u64,
    /// Nor with less free space, in bytes.
    pub(crate) min_free_disk: u64,
    /// What is over is removed after so long; `None` for never.
    pub(crate) keep_stopped: Option<Duration>,
    /// Archives are after so long; `None` for never.
    pub(crate) keep_archives: Option<Duration>,
    /// Whether lost sessions are started when the daemon starts.
    pub(crate) restore_on_start: bool,
    /// Time between two that are restored.
    pub(crate) spacing: Duration,
    /// Where control groups are made.
    pub(crate) cgroup: Cgroup,
    /// Bytes that a session's logs take on disk at most.
    pub(crate) log_size: u64,
    /// Time between two looks for what should be dead.
    pub(crate) interval: Duration,
    /// The commands to run before something is ended, and after.
    pub(crate) before: Vec<OsBytes>,
    pub(crate) after: Vec<OsBytes>,
}

/// Where control groups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cgroup {
    /// Nowhere.
    Off,
    /// Below that of the tmux server, where it is delegated.
    Auto,
    /// Here.
    At(PathBuf),
}

/// The longest part of a log: what gzip can tell the length of.
const LOG_PART_MAX: u64 = u32::MAX as u64;
/// The smallest log that keeps anything.
const LOG_MIN: u64 = 64 << 10;

impl Config {
    /// # Errors
    /// A value that does not parse.
    pub(crate) fn life(&self) -> Result<Life, ConfigError> {
        let pool = &self.pool;
        let log_size = bytes("[logs] max_size", &self.logs.max_size)?;
        if log_size < LOG_MIN {
            return wrong("[logs] max_size is under 64KiB");
        }
        if log_size / (u64::from(self.logs.keep) + 1) > LOG_PART_MAX {
            return wrong("[logs] max_size: a part of it is over 4GiB; keep more, smaller ones");
        }
        if !(1..=100).contains(&self.logs.keep) {
            return wrong("[logs] keep is 1 to 100");
        }
        let interval = duration("[reaper] interval", &self.reaper.interval)?;
        if interval < Duration::from_millis(100) {
            return wrong("[reaper] interval is under 100ms");
        }
        let words = |words: &[String]| words.iter().map(|word| word.as_str().into()).collect();
        Ok(Life {
            wait_slot: duration("[pool] wait_slot", &pool.wait_slot)?,
            min_free_memory: bytes("[pool] min_free_memory", &pool.min_free_memory)?,
            min_free_disk: bytes("[pool] min_free_disk", &pool.min_free_disk)?,
            keep_stopped: unless_never("[pool] keep_stopped", &pool.keep_stopped)?,
            keep_archives: unless_never("[pool] keep_archives", &pool.keep_archives)?,
            restore_on_start: self.restore.on_start,
            spacing: duration("[restore] spacing", &self.restore.spacing)?,
            cgroup: cgroup(&pool.cgroup)?,
            log_size,
            interval,
            before: words(&self.reaper.before),
            after: words(&self.reaper.after),
        })
    }

    /// # Errors
    /// A value that does not parse.
    pub(super) fn reap_rules(&self) -> Result<ReapRules, ConfigError> {
        let reaper = &self.reaper;
        let time = |key: &str, text: &str| duration(&format!("[reaper] {key}"), text);
        allowed("[reaper.policy]", &reaper.policy)?;
        // What is not said of stale agents depends on the agent.
        Ok(ReapRules {
            stale_worker: time("stale_worker", &reaper.stale_worker)?,
            stale_agent: time("stale_agent", &reaper.stale_agent)?,
            hung: time("hung", &reaper.hung)?,
            idle_session: time("idle_session", &reaper.idle_session)?,
            verify_ms: protocol::time::millis(time("verify", &reaper.verify)?),
            max_kills_per_minute: reaper.max_kills_per_minute,
            actions: reaper.policy.clone(),
        })
    }

    /// # Errors
    /// A value that does not parse.
    pub(super) fn restart_rules(&self) -> Result<RestartRules, ConfigError> {
        let restart = &self.restart;
        let time = |key: &str, text: &str| duration(&format!("[restart] {key}"), text);
        let policy = restart.policy.parse();
        Ok(RestartRules {
            policy: policy
                .map_err(|e| ConfigError(format!("[restart] policy: {e}, not {:?}", restart.policy)))?,
            max: restart.max,
            window: time("window", &restart.window)?,
            backoff: time("backoff", &restart.backoff)?.max(Duration::from_millis(10)),
            backoff_max: time("backoff_max", &restart.backoff_max)?,
        })
    }
}

/// # Errors
/// A rule with an action that makes no sense for it.
pub(super) fn allowed(place: &str, actions: &BTreeMap<Rule, Action>) -> Result<(), ConfigError> {
    match actions.iter().find(|(rule, action)| !rule.allows(**action)) {
        Some((rule, action)) => {
            wrong(format!("{place} {} is kill or report, not {}", rule.as_str(), action.as_str()))
        }
        None => Ok(()),
    }
}

/// A duration, or `never`.
pub(super) fn unless_never(key: &str, text: &str) -> Result<Option<Duration>, ConfigError> {
    if text == NEVER { Ok(None) } else { duration(key, text).map(Some) }
}

fn cgroup(text: &str) -> Result<Cgroup, ConfigError> {
    match text {
        "auto" => Ok(Cgroup::Auto),
        "off" => Ok(Cgroup::Off),
        path if path.starts_with('/') => Ok(Cgroup::At(path.into())),
        other => wrong(format!("[pool] cgroup is \"auto\", \"off\" or an absolute path, not {other:?}")),
    }
}
