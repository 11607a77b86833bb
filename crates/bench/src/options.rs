//! Command line of the benchmarks.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Benchmark suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// Calls of `poolctl`.
    Cli,
    /// Latency from a change in tmux to its event.
    Watch,
    /// Throughput of durable messages.
    Queue,
    /// A million waiting messages.
    Million,
    /// One client among hostile ones.
    Hostile,
    /// Latency and rate of creating sessions.
    Create,
    /// A thousand running sessions.
    Thousand,
    /// Latency of ending processes.
    Reap,
    /// Latency of prompts to an agent, and of its reports.
    Deliver,
    /// Latency of waking an agent.
    Wake,
    /// Latency from a message to the handler of its worker.
    Worker,
}

impl Suite {
    /// Default number of measurements of each thing.
    fn runs(self) -> usize {
        match self {
            Self::Cli => 200,
            Self::Watch => 30,
            Self::Queue | Self::Hostile | Self::Create => 5,
            Self::Million => 3,
            Self::Thousand => 1,
            Self::Reap => 10,
            Self::Deliver | Self::Wake => 20,
            Self::Worker => 50,
        }
    }

    /// Default numbers of sessions.
    fn sessions(self) -> Vec<usize> {
        match self {
            Self::Cli => vec![200],
            Self::Watch => vec![10, 100, 1000],
            Self::Queue => vec![64],
            Self::Million => vec![100],
            Self::Hostile => vec![1],
            Self::Create => vec![0, 500],
            Self::Thousand => vec![1000],
            Self::Reap => vec![50],
            Self::Deliver => vec![20],
            Self::Wake => vec![1],
            Self::Worker => vec![20],
        }
    }

    /// True for the suites about messages.
    fn is_queue(self) -> bool {
        matches!(self, Self::Queue | Self::Million | Self::Hostile)
    }

    /// Default duration of one measurement of messages.
    fn time(self) -> Duration {
        Duration::from_secs(if self == Self::Hostile { 2 } else { 1 })
    }

    /// True if a part of the suite measures idle processes.
    fn can_rest(self) -> bool {
        matches!(self, Self::Watch | Self::Thousand | Self::Reap | Self::Deliver)
    }

    /// Default duration of idleness.
    fn idle(self) -> Duration {
        // Every 30 s poold scans all processes.
        Duration::from_secs(if self == Self::Reap { 60 } else { 20 })
    }
}

/// Default numbers of clients that enqueue.
const CLIENTS: [usize; 3] = [1, 8, 64];
/// Default number of waiting messages.
const MESSAGES: usize = 1_000_000;
/// Default directory of databases: `/tmp` may be in memory, where a sync costs nothing.
const DISK: &str = "/var/tmp";
/// Default directory of the real agents, unless set in the environment.
const AGENTS: &str = "target/agents";
const AGENTS_VARIABLE: &str = "AGENTS_DIR";

/// Parsed command line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The suite to run.
    pub(crate) suite: Suite,
    /// Directory of the four binaries.
    pub(crate) bin_dir: PathBuf,
    /// Measurements of each thing.
    pub(crate) runs: usize,
    /// Numbers of sessions; the suite runs once with each.
    pub(crate) sessions: Vec<usize>,
    /// Duration of the measurement of idle processes.
    pub(crate) idle: Duration,
    /// Duration of one measurement of messages.
    pub(crate) time: Duration,
    /// Numbers of clients that enqueue.
    pub(crate) clients: Vec<usize>,
    /// Number of waiting messages.
    pub(crate) messages: usize,
    /// Directory on the disk for messages.
    pub(crate) dir: PathBuf,
    /// Directory of the real agents.
    pub(crate) agents: PathBuf,
}

impl Options {
    /// Parses the arguments after the program's name; `None` if help is requested.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>> {
        let suite = match arguments.next().as_ref().and_then(|word| word.to_str()) {
            Some("cli") => Suite::Cli,
            Some("watch") => Suite::Watch,
            Some("queue") => Suite::Queue,
            Some("create") => Suite::Create,
            Some("reap") => Suite::Reap,
            Some("deliver") => Suite::Deliver,
            Some("worker") => Suite::Worker,
            Some("-h" | "--help") => return Ok(None),
            _ => bail!("no benchmark given"),
        };
        let mut arguments = arguments.peekable();
        let other = match (suite, arguments.peek().and_then(|word| word.to_str())) {
            (Suite::Queue, Some("--million")) => Some(Suite::Million),
            (Suite::Queue, Some("--hostile")) => Some(Suite::Hostile),
            (Suite::Create, Some("--thousand")) => Some(Suite::Thousand),
            (Suite::Deliver, Some("--wake")) => Some(Suite::Wake),
            _ => None,
        };
        if other.is_some() {
            arguments.next();
        }
        let mut options = Self::of(other.unwrap_or(suite))?;
        while let Some(flag) = arguments.next() {
            let flag = flag.to_string_lossy().into_owned();
            let value = arguments.next().with_context(|| format!("{flag} wants a value"))?;
            options.set(&flag, &value)?;
        }
        Ok(Some(options))
    }

    /// Returns the defaults of a suite.
    fn of(suite: Suite) -> Result<Self> {
        Ok(Self {
            suite,
            bin_dir: beside_this()?,
            runs: suite.runs(),
            sessions: suite.sessions(),
            idle: suite.idle(),
            time: suite.time(),
            clients: CLIENTS.into(),
            messages: MESSAGES,
            dir: DISK.into(),
            agents: std::env::var_os(AGENTS_VARIABLE).map_or_else(|| AGENTS.into(), PathBuf::from),
        })
    }

    fn set(&mut self, flag: &str, value: &OsStr) -> Result<()> {
        let seconds = || Ok::<_, anyhow::Error>(Duration::from_secs(count(flag, value)?.try_into()?));
        let path = || std::path::absolute(value).with_context(|| PathBuf::from(value).display().to_string());
        match flag {
            "--bin-dir" => self.bin_dir = path()?,
            "--runs" => self.runs = count(flag, value)?,
            "--existing" if self.suite == Suite::Create => self.sessions = counts(0, flag, value)?,
            "--sessions" if self.suite != Suite::Create => self.sessions = counts(1, flag, value)?,
            "--idle" if self.suite.can_rest() => self.idle = seconds()?,
            "--dir" if self.suite.is_queue() => self.dir = path()?,
            "--agents" if matches!(self.suite, Suite::Deliver | Suite::Wake) => self.agents = path()?,
            "--seconds" if self.suite.is_queue() => self.time = seconds()?,
            "--clients" if self.suite == Suite::Queue => self.clients = counts(1, flag, value)?,
            "--messages" if self.suite == Suite::Million => self.messages = count(flag, value)?,
            _ => bail!("unknown flag: {flag}"),
        }
        Ok(())
    }
}

fn count(flag: &str, value: &OsStr) -> Result<usize> {
    at_least(1, flag, value)
}

fn at_least(least: usize, flag: &str, value: &OsStr) -> Result<usize> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(n) if n >= least => Ok(n),
        _ => bail!("{flag} takes a number of at least {least}"),
    }
}

fn counts(least: usize, flag: &str, value: &OsStr) -> Result<Vec<usize>> {
    value.to_string_lossy().split(',').map(|part| at_least(least, flag, OsStr::new(part))).collect()
}

fn beside_this() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().context("this program's directory is unknown")?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Options>> {
        Options::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn flags_and_defaults() {
        let options = parse(&["cli", "--runs", "5", "--bin-dir", "/b"]).unwrap().unwrap();
        let expected = Options { bin_dir: "/b".into(), runs: 5, ..Options::of(Suite::Cli).unwrap() };
        assert_eq!(options, expected);
        assert_eq!(options.sessions, [200]);
        let options = parse(&["watch", "--sessions", "10,100", "--idle", "2"]).unwrap().unwrap();
        assert_eq!((options.runs, options.sessions), (30, vec![10, 100]));
        assert_eq!(options.idle, Duration::from_secs(2));
        let options = parse(&["queue", "--clients", "1,64", "--seconds", "2"]).unwrap().unwrap();
        assert_eq!((options.suite, options.clients), (Suite::Queue, vec![1, 64]));
        assert_eq!(options.time, Duration::from_secs(2));
        let options = parse(&["queue", "--million", "--messages", "7"]).unwrap().unwrap();
        assert_eq!((options.suite, options.messages), (Suite::Million, 7));
        assert_eq!(parse(&["queue", "--hostile"]).unwrap().unwrap().suite, Suite::Hostile);
        let options = parse(&["create", "--existing", "0,9"]).unwrap().unwrap();
        assert_eq!((options.suite, options.sessions), (Suite::Create, vec![0, 9]));
        let options = parse(&["create", "--thousand", "--sessions", "7", "--idle", "2"]).unwrap().unwrap();
        assert_eq!((options.suite, options.sessions), (Suite::Thousand, vec![7]));
        let options = parse(&["reap", "--sessions", "1,7", "--runs", "2"]).unwrap().unwrap();
        assert_eq!((options.suite, options.sessions, options.idle.as_secs()), (Suite::Reap, vec![1, 7], 60));
        let options = parse(&["deliver", "--agents", "/a", "--sessions", "3"]).unwrap().unwrap();
        assert_eq!((options.suite, options.agents, options.sessions), (Suite::Deliver, "/a".into(), vec![3]));
        assert_eq!(parse(&["--help"]).unwrap(), None);
    }

    #[test]
    fn mistakes_are_refused() {
        for wrong in [
            &[][..],
            &["x"],
            &["cli", "--runs"],
            &["cli", "--runs", "0"],
            &["cli", "--x", "1"],
            &["cli", "--idle", "1"],
            &["watch", "--sessions", "10,"],
            &["watch", "--million"],
            &["queue", "--messages", "7"],
            &["queue", "--seconds", "0"],
            &["create", "--sessions", "1"],
            &["create", "--existing", "x"],
            &["reap", "--existing", "1"],
            &["reap", "--agents", "/a"],
            &["cli", "--sessions", "0"],
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
