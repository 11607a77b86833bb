//! The workers of the configuration, checked.

use std::collections::BTreeMap;

use pool::{EnvFilter, WorkerSettings};
use protocol::worker::WorkerSpec;
use protocol::{OsBytes, millis};

use crate::config::sections::WorkerSection;
use crate::config::values::{ConfigError, duration, invalid, restarts};

/// Returns every worker, by name. `passing` is the part of the daemon's environment that they get.
///
/// # Errors
/// The first invalid value.
pub(super) fn workers(
    sections: &BTreeMap<String, WorkerSection>,
    passing: &EnvFilter,
) -> Result<BTreeMap<String, WorkerSettings>, ConfigError> {
    let mut workers = BTreeMap::new();
    for (name, section) in sections {
        if let Some(unknown) = section.fallback.iter().find(|other| !sections.contains_key(*other)) {
            return invalid(format!("[workers.{name}] fallback: there is no [workers.{unknown}]"));
        }
        workers.insert(name.clone(), section.settings(name, passing)?);
    }
    Ok(workers)
}

impl WorkerSection {
    fn settings(&self, name: &str, passing: &EnvFilter) -> Result<WorkerSettings, ConfigError> {
        let place = |key: &str| format!("[workers.{name}] {key}");
        let time = |key: &str, text: &Option<String>| {
            text.as_deref().map(|text| duration(&place(key), text)).transpose()
        };
        let sessions =
            self.sessions.parse().map_err(|why| ConfigError(format!("{}: {why}", place("sessions"))))?;
        let spec = WorkerSpec {
            name: name.to_owned(),
            command: self.command.iter().map(|word| word.as_str().into()).collect(),
            kinds: self.kinds.clone(),
            sessions,
            session_concurrency: self.session_concurrency,
            concurrency: self.concurrency,
            idle_end_ms: millis(duration(&place("idle_end"), &self.idle_end)?),
            lease_ms: time("lease", &self.lease)?.map(millis),
            timeout_ms: time("timeout", &self.timeout)?.map(millis),
            result: self.result,
            fallback: self.fallback.clone(),
            fallback_after: self.fallback_after,
            configured: true,
            removed: false,
        };
        pool::worker::configure::check(&spec)
            .map_err(|refusal| ConfigError(format!("[workers.{name}]: {}", refusal.message)))?;
        if !self.cwd.is_empty() && !self.cwd.starts_with('/') {
            return invalid(format!("{} is an absolute path, not {:?}", place("cwd"), self.cwd));
        }
        let env = self.environment(passing);
        pool::session::check_environment(&env)
            .map_err(|refusal| ConfigError(format!("[workers.{name}]: {}", refusal.message)))?;
        let limits = self.limits.parse().map_err(|why| ConfigError(format!("{}: {why}", place("limits"))))?;
        Ok(WorkerSettings {
            spec,
            cwd: Some(self.cwd.as_str()).filter(|cwd| !cwd.is_empty()).map(OsBytes::from),
            env,
            limits,
            max_restarts: self.max_restarts.map(|max| restarts(&place("max_restarts"), max)).transpose()?,
        })
    }

    /// Returns the daemon's environment, less what is not passed on, with this section's variables.
    fn environment(&self, passing: &EnvFilter) -> Vec<(OsBytes, OsBytes)> {
        let own = std::env::vars_os().map(|(name, value)| (OsBytes::from(name), OsBytes::from(value)));
        let mut env: BTreeMap<OsBytes, OsBytes> = own.filter(|(name, _)| passing.passes(&name.0)).collect();
        env.extend(self.env.iter().map(|(name, value)| (name.as_str().into(), value.as_str().into())));
        env.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn error(text: &str) -> String {
        Config::parse(text).unwrap_err().0
    }

    #[test]
    fn a_worker_is_a_table_and_its_mistakes_are_named() {
        let good = "[workers.a]\ncommand = ['sh', '-c', 'true']\nkinds = ['job']\nsessions = 'agent:claude,label:team=x'\n\
                    fallback = ['b']\nlimits = 'mem=1G'\nlease = '5s'\ntimeout = '1m'\n[workers.b]\ncommand = ['true']\nsessions = 'pool'";
        let workers = Config::parse(good).unwrap().settings("/s".as_ref(), 0).unwrap().workers;
        let (a, b) = (&workers["a"].spec, &workers["b"].spec);
        assert_eq!((a.concurrency, a.idle_end_ms), (4, 180_000));
        assert_eq!((a.lease_ms, a.timeout_ms), (Some(5000), Some(60_000)));
        assert_eq!((b.lease_ms, b.timeout_ms), (None, None));
        assert_eq!(a.sessions.to_string(), "agent:claude,label:team=x");
        assert_eq!(b.sessions.to_string(), "pool");
        let wrong = |key: &str| error(&format!("[workers.a]\ncommand = ['true']\n{key}"));
        assert!(error("[workers.a]\n").contains("[workers.a]: no command to run"));
        assert!(error("[workers.A]\ncommand = ['true']").contains("bad name of a worker"));
        assert!(wrong("kind = ['a']").contains("did you mean kinds?"));
        assert!(wrong("kinds = ['prompt']").contains("works no prompts"));
        assert!(wrong("sessions = 'agent:'").contains("[workers.a] sessions: sessions are"));
        assert!(wrong("concurrency = 0").contains("at least 1"));
        assert!(wrong("idle_end = 'soon'").contains("[workers.a] idle_end is a duration"));
        assert!(wrong("lease = 'soon'").contains("[workers.a] lease is a duration"));
        assert!(wrong("lease = '10ms'").contains("a lease is from 1s to 24h"));
        assert!(wrong("max_restarts = 0").contains("[workers.a] max_restarts is from 1 to 128"));
        assert!(error("[restart]\nmax = 129").contains("[restart] max is from 1 to 128"));
        assert!(wrong("fallback = ['c']").contains("there is no [workers.c]"));
        assert!(wrong("fallback = ['a']").contains("its own fallback"));
        assert!(wrong("cwd = 'x'").contains("absolute path"));
        assert!(error("[pool]\nmax_processes = 0").contains("max_processes"));
    }
}
