//! The settings of the daemon itself, as the configuration has them.

use std::path::PathBuf;
use std::time::Duration;

use protocol::tmux::TmuxTransport;
use protocol::{OsBytes, millis};

use crate::config::file::Config;
use crate::config::values::{ConfigError, bytes, duration, duration_or_never, interval, invalid};

/// The settings of the daemon itself, beyond those of the core.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DaemonSettings {
    /// Maximum wait of a request for a slot, unless it says otherwise.
    pub(crate) wait_slot: Duration,
    /// Available memory in bytes below which no session is started.
    pub(crate) min_free_memory: u64,
    /// Free disk space in bytes below which no session is started.
    pub(crate) min_free_disk: u64,
    /// Free disk space in bytes below which no message is accepted.
    pub(crate) queue_min_free_disk: u64,
    /// Age at which ended sessions are removed; `None` for never.
    pub(crate) keep_stopped: Option<Duration>,
    /// Age at which archives are removed; `None` for never.
    pub(crate) keep_archives: Option<Duration>,
    /// Number of events that the journal keeps.
    pub(crate) keep_events: u64,
    /// Age up to which the journal keeps events.
    pub(crate) keep_events_for: Duration,
    /// True if lost sessions are started when the daemon starts.
    pub(crate) restore_on_start: bool,
    /// Time between two restored sessions.
    pub(crate) restore_spacing: Duration,
    /// Placement of control groups.
    pub(crate) cgroup: CgroupPlacement,
    /// Maximum bytes of a session's logs on disk.
    pub(crate) log_size: u64,
    /// Maximum silence of a healthy watcher.
    pub(crate) watch_heartbeat: Duration,
    /// Time between two complete listings of tmux in milliseconds; `None` to derive it from the number of
    /// panes.
    pub(crate) watch_sweep_ms: Option<u64>,
    /// The watcher's way to notice changes; `None` for the best one that works.
    pub(crate) watch_transport: Option<TmuxTransport>,
    /// Time between two rounds of the reaper's rules.
    pub(crate) reap_interval: Duration,
    /// Command to run before something is ended.
    pub(crate) before: Vec<OsBytes>,
    /// Command to run after something was ended.
    pub(crate) after: Vec<OsBytes>,
}

/// Placement of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CgroupPlacement {
    /// No control groups.
    Off,
    /// Below the group of the tmux server, if it is delegated.
    Auto,
    /// Below this group.
    At(PathBuf),
}

/// Maximum size of a part of a log in bytes: gzip stores the length in 32 bits.
const LOG_PART_MAX: u64 = u32::MAX as u64;

/// Minimum size of a log in bytes.
const LOG_MIN: u64 = 64 << 10;

impl Config {
    /// Returns the settings of the daemon itself.
    ///
    /// # Errors
    /// The first invalid value.
    pub(crate) fn daemon_settings(&self) -> Result<DaemonSettings, ConfigError> {
        let pool = &self.pool;
        let words = |words: &[String]| words.iter().map(|word| word.as_str().into()).collect();
        Ok(DaemonSettings {
            wait_slot: duration("[pool] wait_slot", &pool.wait_slot)?,
            min_free_memory: bytes("[pool] min_free_memory", &pool.min_free_memory)?,
            min_free_disk: bytes("[pool] min_free_disk", &pool.min_free_disk)?,
            queue_min_free_disk: bytes("[queue] min_free_disk", &self.queue.min_free_disk)?,
            keep_stopped: duration_or_never("[pool] keep_stopped", &pool.keep_stopped)?,
            keep_archives: duration_or_never("[pool] keep_archives", &pool.keep_archives)?,
            keep_events: self.events.keep,
            keep_events_for: duration("[events] keep_for", &self.events.keep_for)?,
            restore_on_start: self.restore.on_start,
            restore_spacing: duration("[restore] spacing", &self.restore.spacing)?,
            cgroup: cgroup(&pool.cgroup)?,
            log_size: self.log_size()?,
            watch_heartbeat: interval("[watch] heartbeat", &self.watch.heartbeat)?,
            watch_sweep_ms: sweep_ms(&self.watch.sweep)?,
            watch_transport: transport(&self.watch.connection)?,
            reap_interval: interval("[reaper] interval", &self.reaper.interval)?,
            before: words(&self.reaper.before),
            after: words(&self.reaper.after),
        })
    }

    fn log_size(&self) -> Result<u64, ConfigError> {
        let size = bytes("[logs] max_size", &self.logs.max_size)?;
        if size < LOG_MIN {
            return invalid("[logs] max_size is under 64KiB");
        }
        if size / (u64::from(self.logs.keep) + 1) > LOG_PART_MAX {
            return invalid("[logs] max_size: a part of it is over 4GiB; keep more, smaller ones");
        }
        if !(1..=100).contains(&self.logs.keep) {
            return invalid("[logs] keep is 1 to 100");
        }
        Ok(size)
    }
}

fn cgroup(text: &str) -> Result<CgroupPlacement, ConfigError> {
    match text {
        "auto" => Ok(CgroupPlacement::Auto),
        "off" => Ok(CgroupPlacement::Off),
        path if path.starts_with('/') => Ok(CgroupPlacement::At(path.into())),
        other => invalid(format!("[pool] cgroup is \"auto\", \"off\" or an absolute path, not {other:?}")),
    }
}

fn sweep_ms(text: &str) -> Result<Option<u64>, ConfigError> {
    if text == "auto" { Ok(None) } else { Ok(Some(millis(interval("[watch] sweep", text)?))) }
}

fn transport(text: &str) -> Result<Option<TmuxTransport>, ConfigError> {
    match text {
        "auto" => Ok(None),
        word => word.parse().map(Some).map_err(|_| {
            let words = "\"auto\", \"native\", \"control\" or \"listings\"";
            ConfigError(format!("[watch] connection is {words}, not {word:?}"))
        }),
    }
}
