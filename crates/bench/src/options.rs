//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// How often each command is measured, unless it is said.
const RUNS: usize = 200;
/// How many sessions there are meanwhile, unless it is said.
const SESSIONS: usize = 200;

/// What to measure, and how.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// Where the four binaries are.
    pub(crate) bin_dir: PathBuf,
    /// Measurements of each command.
    pub(crate) runs: usize,
    /// Sessions in the pool.
    pub(crate) sessions: usize,
}

impl Options {
    /// Reads the arguments after the program's name; `None` where help is asked for.
    ///
    /// # Errors
    /// An unknown word, or a value that is none.
    pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Option<Self>> {
        let mut arguments = arguments.peekable();
        match arguments.next().as_ref().and_then(|word| word.to_str()) {
            Some("cli") => {}
            Some("-h" | "--help") => return Ok(None),
            _ => bail!("which benchmark?"),
        }
        let mut bin_dir = None;
        let (mut runs, mut sessions) = (RUNS, SESSIONS);
        while let Some(flag) = arguments.next() {
            let flag = flag.to_string_lossy().into_owned();
            let value = arguments.next().with_context(|| format!("{flag} wants a value"))?;
            match flag.as_str() {
                "--bin-dir" => bin_dir = Some(PathBuf::from(value)),
                "--runs" => runs = count(&flag, &value)?,
                "--sessions" => sessions = count(&flag, &value)?,
                _ => bail!("no such flag: {flag}"),
            }
        }
        let bin_dir = bin_dir.map_or_else(beside_this, |dir| {
            std::path::absolute(&dir).with_context(|| dir.display().to_string())
        })?;
        Ok(Some(Self { bin_dir, runs, sessions }))
    }
}

fn count(flag: &str, value: &OsString) -> Result<usize> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(n) if n > 0 => Ok(n),
        _ => bail!("{flag} wants a number above 0"),
    }
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
        assert_eq!(options, Options { bin_dir: "/b".into(), runs: 5, sessions: SESSIONS });
        assert_eq!(parse(&["--help"]).unwrap(), None);
        for wrong in [&[][..], &["x"], &["cli", "--runs"], &["cli", "--runs", "0"], &["cli", "--x", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
