//! The configuration file: every key has a default, and an unknown key is an error that names the nearest
//! one.

use std::collections::BTreeMap;

use protocol::{OsBytes, redact};
use serde::{Deserialize, Serialize};

use crate::config::sections::*;
use crate::config::values::{ConfigError, invalid, nearest};

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
    /// `[workers.NAME]`
    pub workers: BTreeMap<String, WorkerSection>,
}

/// Replacement of secret values.
const REDACTED: &str = "…redacted…";

impl Config {
    /// Returns the configuration with every key, as TOML. The values of agents' and workers' environment variables are
    /// redacted, and the secrets in command lines.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        let mut shown = self.clone();
        let agents = shown.agents.values_mut().flat_map(|agent| agent.env.values_mut());
        let workers = shown.workers.values_mut().flat_map(|worker| worker.env.values_mut());
        agents.chain(workers).for_each(|value| REDACTED.clone_into(value));
        let agents = shown.agents.values_mut();
        let agents =
            agents.flat_map(|agent| [&mut agent.args, &mut agent.start_args, &mut agent.resume_args]);
        let workers = shown.workers.values_mut().map(|worker| &mut worker.command);
        let reaper = [&mut shown.reaper.before, &mut shown.reaper.after];
        agents.flatten().chain(workers).chain(reaper).for_each(redact_words);
        toml::to_string_pretty(&shown).map_err(|e| ConfigError(e.to_string()))
    }
}

fn redact_words(words: &mut Vec<String>) {
    let line: Vec<OsBytes> = words.iter().map(|word| word.as_str().into()).collect();
    *words = redact::command(&line).iter().map(|word| word.to_string_lossy()).collect();
}

/// Refuses unknown sections and keys.
pub(crate) fn check_keys(table: &toml::Table) -> Result<(), ConfigError> {
    let known = toml::Table::try_from(Config::default()).map_err(|e| ConfigError(e.to_string()))?;
    let named = |keys: Result<toml::Table, _>| keys.map_err(|e: toml::ser::Error| ConfigError(e.to_string()));
    let agent = named(toml::Table::try_from(AgentSection::full()))?;
    let worker = named(toml::Table::try_from(WorkerSection::full()))?;
    for (section, value) in table {
        check_key("", section, &known, &known)?;
        let Some(value) = value.as_table() else { continue };
        for (key, inner) in value {
            if let "agents" | "workers" = section.as_str() {
                let keys = if section == "agents" { &agent } else { &worker };
                let Some(inner) = inner.as_table() else {
                    let meant = meant_key(key, &format!("[{section}.NAME] "), keys, &known);
                    return unknown_key(&format!("[{section}] "), key, &meant);
                };
                for inner in inner.keys() {
                    check_key(&format!("[{section}.{key}] "), inner, keys, &known)?;
                }
            } else if let Some(keys) = known.get(section).and_then(toml::Value::as_table) {
                check_key(&format!("[{section}] "), key, keys, &known)?;
            }
        }
    }
    Ok(())
}

fn check_key(place: &str, key: &str, keys: &toml::Table, sections: &toml::Table) -> Result<(), ConfigError> {
    if keys.contains_key(key) {
        return Ok(());
    }
    unknown_key(place, key, &meant_key(key, "", keys, sections))
}

fn unknown_key(place: &str, key: &str, meant: &str) -> Result<(), ConfigError> {
    invalid(format!("unknown key {place}{key}; did you mean {meant}?"))
}

/// Returns the same key of another section, or else the nearest of these keys.
fn meant_key(key: &str, place: &str, keys: &toml::Table, sections: &toml::Table) -> String {
    let has_it = |value: &toml::Value| value.as_table().is_some_and(|section| section.contains_key(key));
    match sections.iter().find(|(_, section)| has_it(section)) {
        Some((section, _)) => format!("[{section}] {key}"),
        None => format!("{place}{}", nearest(key, keys.keys().map(String::as_str)).unwrap_or_default()),
    }
}
