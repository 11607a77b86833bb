//! The command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Suite {
    /// Starts of `poolctl`.
    Cli,
    /// From a change in tmux to its event.
    Watch,
}

impl Suite {
    /// How often each thing is measured, unless it is said.
    fn runs(self) -> usize {
        match self {
            Self::Cli => 200,
            Self::Watch => 30,
        }
    }

    /// With how many sessions, unless it is said.
    fn sessions(self) -> Vec<usize> {
        match self {
            Self::Cli => vec![200],
            Self::Watch => vec![10, 100, 1000],
        }
    }
}

/// How long nothing happens, unless it is said.
const IDLE: Duration = Duration::from_secs(20);

/// What to measure, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// What.
    pub(crate) suite: Suite,
    /// Where the four binaries are.
    pub(crate) bin_dir: PathBuf,
    /// Measurements of each thing.
    pub(crate) runs: usize,
    /// Sessions meanwhile: all is measured with each of these numbers.
    pub(crate) sessions: Vec<usize>,
    /// For how long the idle processes are watched.
    pub(crate) idle: Duration,
}

impl Options {
    /// Reads the arguments after the program's name; `None` where help is asked for.
    ///
    /// # Errors
    /// An unknown word, or a value that is none.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>> {
        let suite = match arguments.next().as_ref().and_then(|word| word.to_str()) {
            Some("cli") => Suite::Cli,
            Some("watch") => Suite::Watch,
            Some("-h" | "--help") => return Ok(None),
            _ => bail!("which benchmark?"),
        };
        let (mut runs, mut sessions, mut idle) = (suite.runs(), suite.sessions(), IDLE);
        let mut bin_dir = None;
        while let Some(flag) = arguments.next() {
            let flag = flag.to_string_lossy().into_owned();
            let value = arguments.next().with_context(|| format!("{flag} wants a value"))?;
            match flag.as_str() {
                "--bin-dir" => bin_dir = Some(PathBuf::from(value)),
                "--runs" => runs = count(&flag, &value)?,
                "--sessions" => sessions = counts(&flag, &value)?,
                "--idle" if suite == Suite::Watch => {
                    idle = Duration::from_secs(count(&flag, &value)?.try_into()?);
                }
                _ => bail!("no such flag: {flag}"),
            }
        }
        let bin_dir = bin_dir.map_or_else(beside_this, |dir| {
            std::path::absolute(&dir).with_context(|| dir.display().to_string())
        })?;
        Ok(Some(Self { suite, bin_dir, runs, sessions, idle }))
    }
}

fn count(flag: &str, value: &OsStr) -> Result<usize> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(n) if n > 0 => Ok(n),
        _ => bail!("{flag} wants a number above 0"),
    }
}

fn counts(flag: &str, value: &OsStr) -> Result<Vec<usize>> {
    value.to_string_lossy().split(',').map(|part| count(flag, OsStr::new(part))).collect()
}

fn beside_this() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    Ok(this.parent().context("this program has no directory")?.to_owned())
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
        let expected =
            Options { suite: Suite::Cli, bin_dir: "/b".into(), runs: 5, sessions: vec![200], idle: IDLE };
        assert_eq!(options, expected);
        let options = parse(&["watch", "--sessions", "10,100", "--idle", "2"]).unwrap().unwrap();
        assert_eq!((options.runs, options.sessions), (30, vec![10, 100]));
        assert_eq!(options.idle, Duration::from_secs(2));
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
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
