//! The configuration file: every key has a default, an unknown key is an error that names the nearest.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pool::{Agent, Naming, Settings};
use protocol::session::Size;
use serde::{Deserialize, Serialize};

/// Everything that can be configured.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// `[pool]`
    pub pool: PoolSection,
    /// `[tmux]`
    pub tmux: TmuxSection,
    /// `[watch]`
    pub watch: WatchSection,
    /// `[queue]`
    pub queue: QueueSection,
    /// `[reaper]`
    pub reaper: ReaperSection,
    /// `[events]`
    pub events: EventsSection,
    /// `[agents.NAME]`
    pub agents: BTreeMap<String, AgentSection>,
}

/// `[pool]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PoolSection {
    /// How many sessions may run at once.
    pub max_sessions: usize,
    /// `timestamp` or `numeric`.
    pub naming: NamingWord,
}

impl Default for PoolSection {
    fn default() -> Self {
        Self { max_sessions: 16, naming: NamingWord::Timestamp }
    }
}

/// How names are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamingWord {
    /// Agent, date and time.
    Timestamp,
    /// The next number.
    Numeric,
}

/// `[tmux]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TmuxSection {
    /// `own`, or the path of a server's socket.
    pub socket: String,
    /// The tmux program.
    pub binary: String,
    /// The configuration of a server that the pool starts; its own minimal one where empty.
    pub config: String,
    /// Size of a new terminal, `COLSxROWS`.
    pub size: String,
    /// Lines of scrollback.
    pub history_limit: u32,
}

impl Default for TmuxSection {
    fn default() -> Self {
        Self {
            socket: "own".to_owned(),
            binary: "tmux".to_owned(),
            config: String::new(),
            size: "200x50".to_owned(),
            history_limit: 50_000,
        }
    }
}

/// `[watch]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WatchSection {
    /// Longest silence of a healthy watcher.
    pub heartbeat: String,
}

impl Default for WatchSection {
    fn default() -> Self {
        Self { heartbeat: "2s".to_owned() }
    }
}

/// `[queue]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSection {
    /// Messages of a session that are not final.
    pub max_messages: u64,
    /// Bytes of them.
    pub max_bytes: String,
    /// How long a final message is kept.
    pub keep_done: String,
}

impl Default for QueueSection {
    fn default() -> Self {
        Self { max_messages: 10_000, max_bytes: "64MiB".to_owned(), keep_done: "24h".to_owned() }
    }
}

/// `[reaper]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReaperSection {
    /// Time between TERM and KILL.
    pub grace: String,
}

impl Default for ReaperSection {
    fn default() -> Self {
        Self { grace: "5s".to_owned() }
    }
}

/// `[events]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventsSection {
    /// Events that the journal keeps.
    pub keep: u64,
}

impl Default for EventsSection {
    fn default() -> Self {
        Self { keep: 100_000 }
    }
}

/// `[agents.NAME]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentSection {
    /// The program; the caller's shell where empty.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Added to its environment.
    pub env: BTreeMap<String, String>,
    /// Whether it sees the tmux it runs in.
    pub see_tmux: bool,
}

/// What is wrong with a configuration, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

fn wrong<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

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
        config.keep_done().map(|_| ())?;
        Ok(config)
    }

    /// The text of it, with every key.
    ///
    /// # Errors
    /// Never, for a configuration that was parsed.
    pub fn to_toml(&self) -> Result<String, ConfigError> {
        toml::to_string_pretty(self).map_err(|e| ConfigError(e.to_string()))
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
            agents: self.agents()?,
            umask,
            queue_messages: self.queue.max_messages,
            queue_bytes: bytes("[queue] max_bytes", &self.queue.max_bytes)?,
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

    /// How long a final message is kept.
    ///
    /// # Errors
    /// A value that does not parse.
    pub fn keep_done(&self) -> Result<Duration, ConfigError> {
        duration("[queue] keep_done", &self.queue.keep_done)
    }

    /// Where tmux listens; `own` is the pool's own server.
    ///
    /// # Errors
    /// A path that is not absolute.
    pub fn tmux_socket(&self, own: &Path) -> Result<PathBuf, ConfigError> {
        match self.tmux.socket.as_str() {
            "own" => Ok(own.to_owned()),
            path if Path::new(path).is_absolute() => Ok(path.into()),
            other => wrong(format!("[tmux] socket is \"own\" or an absolute path, not {other:?}")),
        }
    }

    fn agents(&self) -> Result<BTreeMap<String, Agent>, ConfigError> {
        let mut agents: BTreeMap<String, Agent> = ["claude", "codex", "gemini", "shell"]
            .map(|name| {
                let command = if name == "shell" { vec![] } else { vec![name.to_owned()] };
                (name.to_owned(), Agent { command, see_tmux: name == "shell", ..Agent::default() })
            })
            .into();
        for (name, section) in &self.agents {
            if name.parse::<protocol::Name>().is_err() || name.len() > 32 {
                return wrong(format!(
                    "[agents.{name}]: a kind is named like a session, 32 characters at most"
                ));
            }
            if section.command.is_empty() && !section.args.is_empty() {
                return wrong(format!("[agents.{name}] has args and no command"));
            }
            let words = std::iter::once(&section.command).filter(|c| !c.is_empty()).chain(&section.args);
            let agent = Agent {
                command: words.cloned().collect(),
                env: section.env.clone(),
                see_tmux: section.see_tmux,
            };
            agents.insert(name.clone(), agent);
        }
        Ok(agents)
    }
}

fn size(text: &str) -> Result<Size, ConfigError> {
    let parsed =
        text.split_once('x').and_then(|(c, r)| Some(Size { cols: c.parse().ok()?, rows: r.parse().ok()? }));
    parsed
        .filter(|s| s.cols > 0 && s.rows > 0)
        .ok_or_else(|| ConfigError(format!("[tmux] size is like 200x50, not {text:?}")))
}

fn duration(key: &str, text: &str) -> Result<Duration, ConfigError> {
    humantime::parse_duration(text)
        .map_err(|e| ConfigError(format!("{key} is a duration like 5s, not {text:?}: {e}")))
}

fn bytes(key: &str, text: &str) -> Result<u64, ConfigError> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match text[digits.len()..].trim() {
        "" | "B" => Some(1),
        "KiB" | "K" => Some(1 << 10),
        "MiB" | "M" => Some(1 << 20),
        "GiB" | "G" => Some(1_u64 << 30),
        _ => None,
    };
    let value = digits.trim().parse::<u64>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(factor));
    value.ok_or_else(|| ConfigError(format!("{key} is a size like 64MiB, not {text:?}")))
}

/// Every key that there is, below its section.
fn known_keys(table: &toml::Table) -> Result<(), ConfigError> {
    let known = toml::Table::try_from(Config::default()).map_err(|e| ConfigError(e.to_string()))?;
    let agent = toml::Table::try_from(AgentSection::default()).map_err(|e| ConfigError(e.to_string()))?;
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

fn is_known<'a>(place: &str, key: &str, known: impl Iterator<Item = &'a String>) -> Result<(), ConfigError> {
    let known: Vec<&str> = known.map(String::as_str).collect();
    if known.contains(&key) {
        return Ok(());
    }
    let nearest =
        known.iter().max_by(|a, b| strsim::jaro_winkler(a, key).total_cmp(&strsim::jaro_winkler(b, key)));
    wrong(format!("unknown key {place}{key}; did you mean {}?", nearest.unwrap_or(&"pool")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_survive_a_round_trip() {
        let config = Config::parse("").unwrap();
        assert_eq!(Config::parse(&config.to_toml().unwrap()).unwrap(), config);
        assert_eq!(config.settings(Path::new("/s"), 0).unwrap().max_sessions, 16);
    }

    #[test]
    fn mistakes_are_named() {
        let says = |text: &str| Config::parse(text).unwrap_err().0;
        assert!(says("[pool]\nmax_session = 3").contains("[pool] max_session; did you mean max_sessions?"));
        assert!(says("[tmuxx]\n").contains("did you mean tmux?"));
        assert!(says("[agents.x]\ncomand = 'y'").contains("did you mean command?"));
        assert!(says("[reaper]\ngrace = 'soon'").contains("duration like 5s"));
        assert!(says("[queue]\nmax_bytes = '1 furlong'").contains("size like 64MiB"));
        assert!(says("[tmux]\nsize = '0x5'").contains("200x50"));
        assert!(says("[pool\n").contains("TOML parse error"));
    }

    #[test]
    fn an_agent_is_a_table() {
        let config = Config::parse("[agents.aider]\ncommand = 'aider'\nargs = ['--yes']").unwrap();
        let settings = config.settings(Path::new("/s"), 0).unwrap();
        assert_eq!(settings.agents["aider"].command, ["aider", "--yes"]);
        assert!(settings.agents["shell"].see_tmux && !settings.agents["claude"].see_tmux);
    }
}
