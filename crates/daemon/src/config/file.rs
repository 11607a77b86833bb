//! The configuration file: every key has a default, an unknown key is an error that names the nearest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pool::queue::Rules;
use pool::{Adoption, Naming, Passing, Settings};
use protocol::tmux::TmuxTransport;
use serde::{Deserialize, Serialize};

use crate::config::sections::*;
use crate::config::values::{ConfigError, bytes, duration, is_known, size, wrong};
use crate::config::{agents, lifecycle};

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[pool]`
    pub pool: PoolSection,
    /// `[env]`
    pub env: EnvSection,
    /// `[tmux]`
    pub tmux: TmuxSection,
    /// `[watch]`
    pub watch: WatchSection,
    /// `[queue]`
    pub queue: QueueSection,
    /// `[reaper]`
    pub reaper: ReaperSection,
    /// `[logs]`
    pub logs: LogsSection,
    /// `[restart]`
    pub restart: RestartSection,
    /// `[restore]`
    pub restore: RestoreSection,
    /// `[events]`
    pub events: EventsSection,
    /// `[agents.NAME]`
    pub agents: BTreeMap<String, AgentSection>,
}

/// What is shown in the place of a secret.
pub(crate) const REDACTED: &str = "…redacted…";

impl Config {
    /// Reads the file; defaults where there is none.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return wrong(format!("{}: {error}", path.display())),
        };
        Self::parse(&text).map_err(|ConfigError(what)| ConfigError(format!("{}: {what}", path.display())))
    }

    /// Parses and checks a text.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let table: toml::Table = toml::from_str(text).map_err(|e| ConfigError(e.to_string()))?;
        known_keys(&table)?;
        let config: Self = toml::from_str(text).map_err(|e| ConfigError(e.to_string()))?;
        config.settings(Path::new("/"), 0).map(|_| ())?;
        config.heartbeat().map(|_| ())?;
        config.sweep().map(|_| ())?;
        config.means().map(|_| ())?;
        config.min_free_disk().map(|_| ())?;
        config.keep_events_for().map(|_| ())?;
        config.life().map(|_| ())?;
        Ok(config)
    }

    /// The text of it, with every key; of what agents are given in their environment only the names.
    ///
    /// # Errors
    /// Never, for a configuration that was parsed.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        let mut shown = self.clone();
        let secrets = shown.agents.values_mut().flat_map(|agent| agent.env.values_mut());
        secrets.for_each(|value| REDACTED.clone_into(value));
        toml::to_string_pretty(&shown).map_err(|e| ConfigError(e.to_string()))
    }

    /// What of a caller's environment goes along.
    fn passing(&self) -> Result<Passing, ConfigError> {
        let EnvSection { pass, drop } = &self.env;
        let odd = |pattern: &&String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            name.contains(['*', '=', '\0']) || pattern.is_empty()
        };
        match pass.iter().chain(drop).find(odd) {
            Some(odd) => wrong(format!("[env] {odd:?}: a name of a variable, or how names begin and a *")),
            None => Ok(Passing { pass: pass.clone(), drop: drop.clone() }),
        }
    }

    /// What the core needs of it.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn settings(&self, sessions_dir: &Path, umask: u32) -> Result<Settings, ConfigError> {
        if self.pool.max_sessions == 0 {
            return wrong("[pool] max_sessions must be at least 1");
        }
        Ok(Settings {
            max_sessions: self.pool.max_sessions,
            naming: match self.pool.naming {
                NamingWord::Timestamp => Naming::Timestamp,
                NamingWord::Numeric => Naming::Numeric,
            },
            size: size(&self.tmux.size)?,
            sessions_dir: sessions_dir.to_owned(),
            agents: agents::agents(&self.agents)?,
            umask,
            env: self.passing()?,
            adoption: adoption(&self.tmux.adopt)?,
            queue: self.rules()?,
            restart: self.restart_rules()?,
            idle_timeout: lifecycle::unless_never("[pool] idle_timeout", &self.pool.idle_timeout)?,
            idle_quiet: duration("[pool] idle_quiet", &self.pool.idle_quiet)?,
            idle_settle: duration("[pool] idle_settle", &self.pool.idle_settle)?,
            typing_pause: duration("[pool] typing_pause", &self.pool.typing_pause)?,
            ready_limit: duration("[pool] ready_limit", &self.pool.ready_limit)?,
            bounds: Default::default(),
            reap: self.reap_rules()?,
            grace_ms: u64::try_from(duration("[reaper] grace", &self.reaper.grace)?.as_millis())
                .unwrap_or(u64::MAX),
        })
    }

    /// Longest silence of a healthy watcher.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn heartbeat(&self) -> Result<Duration, ConfigError> {
        let heartbeat = duration("[watch] heartbeat", &self.watch.heartbeat)?;
        if heartbeat < Duration::from_millis(100) {
            wrong("[watch] heartbeat is under 100ms")
        } else {
            Ok(heartbeat)
        }
    }

    /// Time between two whole listings, in milliseconds; `None`: by the number of panes.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn sweep(&self) -> Result<Option<u64>, ConfigError> {
        match self.watch.sweep.as_str() {
            "auto" => Ok(None),
            text => {
                let ms = duration("[watch] sweep", text)?.as_millis();
                let ms = u64::try_from(ms).ok().filter(|ms| *ms >= 100);
                ms.map(Some).ok_or_else(|| ConfigError("[watch] sweep is under 100ms".to_owned()))
            }
        }
    }

    /// How the watcher is to notice changes; `None`: the best way that works.
    ///
    /// # Errors
    /// Another word.
    pub fn means(&self) -> Result<Option<TmuxTransport>, ConfigError> {
        match self.watch.connection.as_str() {
            "auto" => Ok(None),
            word => word.parse().map(Some).map_err(|_| {
                let words = "\"auto\", \"native\", \"control\" or \"listings\"";
                ConfigError(format!("[watch] connection is {words}, not {word:?}"))
            }),
        }
    }

    /// Below so many free bytes no message is taken.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn min_free_disk(&self) -> Result<u64, ConfigError> {
        bytes("[queue] min_free_disk", &self.queue.min_free_disk)
    }

    /// How long the journal keeps events.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn keep_events_for(&self) -> Result<Duration, ConfigError> {
        duration("[events] keep_for", &self.events.keep_for)
    }

    fn rules(&self) -> Result<Rules, ConfigError> {
        let queue = &self.queue;
        let time = |key: &str, text: &str| duration(&format!("[queue] {key}"), text);
        if queue.max_attempts == 0 {
            return wrong("[queue] max_attempts must be at least 1");
        }
        let lease = time("lease", &queue.lease)?;
        if lease < Duration::from_secs(1) {
            return wrong("[queue] lease is under 1s");
        }
        Ok(Rules {
            max_messages: queue.max_messages,
            max_bytes: bytes("[queue] max_bytes", &queue.max_bytes)?,
            pool_max_messages: queue.pool_max_messages,
            pool_max_bytes: bytes("[queue] pool_max_bytes", &queue.pool_max_bytes)?,
            max_attempts: queue.max_attempts,
            lease,
            retry_backoff: time("retry_backoff", &queue.retry_backoff)?,
            breaker_failures: queue.breaker_failures,
            breaker_pause: time("breaker_pause", &queue.breaker_pause)?,
            keep_done: time("keep_done", &queue.keep_done)?,
            keep_dead: time("keep_dead", &queue.keep_dead)?,
            keep_count: queue.keep_count,
        })
    }

    /// Where tmux listens; `own` is the pool's own server.
    ///
    /// # Errors
    /// A path that is not absolute.
    pub fn tmux_socket(&self, own: &Path) -> Result<PathBuf, ConfigError> {
        match self.tmux.socket.as_str() {
            "own" => Ok(own.to_owned()),
            "default" => Ok(default_socket()),
            path if Path::new(path).is_absolute() => Ok(path.into()),
            other => {
                wrong(format!("[tmux] socket is \"own\", \"default\" or an absolute path, not {other:?}"))
            }
        }
    }
}

/// Where tmux itself listens unless told otherwise.
pub(crate) fn default_socket() -> PathBuf {
    let dir = std::env::var_os("TMUX_TMPDIR").filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/tmp".into());
    Path::new(&dir).join(format!("tmux-{}", nix::unistd::getuid())).join("default")
}

pub(crate) fn adoption(text: &str) -> Result<Adoption, ConfigError> {
    match (text, text.strip_prefix("prefix:")) {
        ("never", _) => Ok(Adoption::Never),
        ("all", _) => Ok(Adoption::All),
        (_, Some(prefix)) if !prefix.is_empty() => Ok(Adoption::Prefix(prefix.to_owned())),
        _ => wrong(format!("[tmux] adopt is \"never\", \"prefix:…\" or \"all\", not {text:?}")),
    }
}

/// Every key that there is, below its section.
pub(crate) fn known_keys(table: &toml::Table) -> Result<(), ConfigError> {
    let known = toml::Table::try_from(Config::default()).map_err(|e| ConfigError(e.to_string()))?;
    let agent = toml::Table::try_from(AgentSection::full()).map_err(|e| ConfigError(e.to_string()))?;
    for (section, value) in table {
        is_known("", section, known.keys())?;
        let Some(value) = value.as_table() else { continue };
        for (key, inner) in value {
            if section == "agents" {
                for key in inner.as_table().into_iter().flat_map(toml::Table::keys) {
                    is_known("[agents.…] ", key, agent.keys())?;
                }
            } else if let Some(keys) = known.get(section).and_then(toml::Value::as_table) {
                is_known(&format!("[{section}] "), key, keys.keys())?;
            }
        }
    }
    Ok(())
}
