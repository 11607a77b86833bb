//! The settings of the core, as the configuration has them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pool::{Adoption, EnvFilter, QueueRules, ReapRules, RestartRules, Settings};
use protocol::{InDoubt, millis};

use crate::config::file::Config;
use crate::config::sections::{DoubtRule, EnvSection};
use crate::config::values::{
    ConfigError, bytes, check_actions, duration, duration_or_never, invalid, lease, restarts, share_or_never,
    size,
};
use crate::config::{agent_kinds, workers};

impl Config {
    /// Returns the settings of the core.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn settings(&self, sessions_dir: &Path, umask: u32) -> Result<Settings, ConfigError> {
        if self.pool.max_sessions == 0 {
            return invalid("[pool] max_sessions must be at least 1");
        }
        if self.pool.max_processes == 0 {
            return invalid("[pool] max_processes must be at least 1");
        }
        // tmux refuses more.
        if i32::try_from(self.tmux.history_limit).is_err() {
            return invalid(format!("[tmux] history_limit is at most {}", i32::MAX));
        }
        let env = self.passing()?;
        Ok(Settings {
            max_sessions: self.pool.max_sessions,
            max_processes: self.pool.max_processes,
            workers: workers::workers(&self.workers, &env)?,
            naming: self.pool.naming,
            size: size(&self.tmux.size)?,
            sessions_dir: sessions_dir.to_owned(),
            agents: agent_kinds::agent_kinds(&self.agents)?,
            umask,
            env,
            adoption: adoption(&self.tmux.adopt)?,
            queue: self.queue_rules()?,
            restart: self.restart_rules()?,
            idle_timeout: duration_or_never("[pool] idle_timeout", &self.pool.idle_timeout)?,
            idle_quiet: duration("[pool] idle_quiet", &self.pool.idle_quiet)?,
            idle_settle: duration("[pool] idle_settle", &self.pool.idle_settle)?,
            typing_pause: duration("[pool] typing_pause", &self.pool.typing_pause)?,
            ready_limit: duration("[pool] ready_limit", &self.pool.ready_limit)?,
            enforceable: Default::default(),
            reap: self.reap_rules()?,
            grace_ms: millis(duration("[reaper] grace", &self.reaper.grace)?),
        })
    }

    /// Returns the socket on which tmux listens; `own` is that of the pool's own server.
    ///
    /// # Errors
    /// A relative path.
    pub fn tmux_socket(&self, own: &Path) -> Result<PathBuf, ConfigError> {
        match self.tmux.socket.as_str() {
            "own" => Ok(own.to_owned()),
            "default" => Ok(default_socket()),
            path if Path::new(path).is_absolute() => Ok(path.into()),
            other => {
                invalid(format!("[tmux] socket is \"own\", \"default\" or an absolute path, not {other:?}"))
            }
        }
    }

    /// Returns the rules for passing on a caller's environment.
    fn passing(&self) -> Result<EnvFilter, ConfigError> {
        let EnvSection { pass, drop } = &self.env;
        let is_invalid = |pattern: &&String| {
            let name = pattern.strip_suffix('*').unwrap_or(pattern);
            name.contains(['*', '=', '\0']) || pattern.is_empty()
        };
        match pass.iter().chain(drop).find(is_invalid) {
            // A value behind the name may be a secret.
            Some(pattern) => invalid(format!(
                "[env] {:?} is neither the name of a variable nor a prefix followed by *",
                pattern.split_inclusive('=').next().unwrap_or_default()
            )),
            None => Ok(EnvFilter { pass: pass.clone(), drop: drop.clone() }),
        }
    }

    fn queue_rules(&self) -> Result<QueueRules, ConfigError> {
        let queue = &self.queue;
        let time = |key: &str, text: &str| duration(&format!("[queue] {key}"), text);
        if queue.max_attempts == 0 {
            return invalid("[queue] max_attempts must be at least 1");
        }
        Ok(QueueRules {
            max_messages: queue.max_messages,
            max_bytes: bytes("[queue] max_bytes", &queue.max_bytes)?,
            pool_max_messages: queue.pool_max_messages,
            pool_max_bytes: bytes("[queue] pool_max_bytes", &queue.pool_max_bytes)?,
            max_attempts: queue.max_attempts,
            lease: lease("[queue] lease", &queue.lease)?,
            retry_backoff: time("retry_backoff", &queue.retry_backoff)?,
            breaker_failures: queue.breaker_failures,
            breaker_pause: time("breaker_pause", &queue.breaker_pause)?,
            stuck_after: duration_or_never("[queue] stuck_after", &queue.stuck_after)?,
            in_doubt: match queue.in_doubt {
                DoubtRule::Hold => InDoubt::Hold,
                DoubtRule::Dead => InDoubt::Dead,
            },
            keep_done: time("keep_done", &queue.keep_done)?,
            keep_dead: time("keep_dead", &queue.keep_dead)?,
            keep_count: queue.keep_count,
        })
    }

    fn reap_rules(&self) -> Result<ReapRules, ConfigError> {
        let reaper = &self.reaper;
        let time = |key: &str, text: &str| duration(&format!("[reaper] {key}"), text);
        check_actions("[reaper.policy]", &reaper.policy)?;
        // A missing action of stale agents depends on the agent.
        Ok(ReapRules {
            stale_worker: time("stale_worker", &reaper.stale_worker)?,
            stale_agent: time("stale_agent", &reaper.stale_agent)?,
            hung: time("hung", &reaper.hung)?,
            idle_session: time("idle_session", &reaper.idle_session)?,
            host_memory: share_or_never("[reaper] host_memory", &reaper.host_memory)?,
            host_memory_pressure: share_or_never(
                "[reaper] host_memory_pressure",
                &reaper.host_memory_pressure,
            )?,
            host_disk: share_or_never("[reaper] host_disk", &reaper.host_disk)?,
            verify_ms: millis(time("verify", &reaper.verify)?),
            max_kills_per_minute: reaper.max_kills_per_minute,
            actions: reaper.policy.clone(),
        })
    }

    fn restart_rules(&self) -> Result<RestartRules, ConfigError> {
        let restart = &self.restart;
        let time = |key: &str, text: &str| duration(&format!("[restart] {key}"), text);
        let policy = restart.policy.parse();
        Ok(RestartRules {
            policy: policy
                .map_err(|e| ConfigError(format!("[restart] policy: {e}, not {:?}", restart.policy)))?,
            max: restarts("[restart] max", restart.max)?,
            window: time("window", &restart.window)?,
            backoff: time("backoff", &restart.backoff)?.max(Duration::from_millis(10)),
            backoff_max: time("backoff_max", &restart.backoff_max)?,
        })
    }
}

/// Returns the socket on which tmux listens by default.
fn default_socket() -> PathBuf {
    let dir = std::env::var_os("TMUX_TMPDIR").filter(|dir| !dir.is_empty()).unwrap_or_else(|| "/tmp".into());
    Path::new(&dir).join(format!("tmux-{}", nix::unistd::getuid())).join("default")
}

fn adoption(text: &str) -> Result<Adoption, ConfigError> {
    match (text, text.strip_prefix("prefix:")) {
        ("never", _) => Ok(Adoption::Never),
        ("all", _) => Ok(Adoption::All),
        (_, Some(prefix)) if !prefix.is_empty() => Ok(Adoption::Prefix(prefix.to_owned())),
        _ => invalid(format!("[tmux] adopt is \"never\", \"prefix:…\" or \"all\", not {text:?}")),
    }
}
