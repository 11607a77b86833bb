//! What bounds a session's processes, and how people write it: `mem=2G,cpu=150%,tasks=200`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What bounds a session's processes. Nothing is bounded where nothing is said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// `mem`: memory of all of its processes, in bytes.
    pub memory: Option<u64>,
    /// `cpu`: share of one processor in percent; 150 is one and a half.
    pub cpu: Option<u32>,
    /// `tasks`: processes and threads.
    pub tasks: Option<u32>,
    /// `disk`: bytes below its directory.
    pub disk: Option<u64>,
    /// `nofile`: open files of each process.
    pub open_files: Option<u64>,
    /// `core`: size of a core file, in bytes.
    pub core: Option<u64>,
    /// `fsize`: size of a file that it writes, in bytes.
    pub file_size: Option<u64>,
    /// `nice`: 0 to 19; higher gives way to others.
    pub nice: Option<i32>,
    /// `cpus`: the processors that it may use, first and last of each range.
    pub cpus: Vec<(u16, u16)>,
    /// Start it even where some of these cannot be held; `show` names them.
    pub best_effort: bool,
}

/// What is wrong with a text of limits, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitError(String);

/// The highest processor number that a kernel has (`CONFIG_NR_CPUS` of every distribution).
const CPU_MAX: u16 = 8191;
/// No tree can live in less memory: the program is ended before it is loaded.
const MEMORY_MIN: u64 = 1 << 20;

const KEYS: &str = "mem, cpu, tasks, disk, nofile, core, fsize, nice, cpus";

impl FromStr for Limits {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let mut limits = Self::default();
        let mut last = None;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match (word.split_once('='), last) {
                (Some((key, value)), _) => {
                    limits.set(key.trim(), value.trim())?;
                    last = Some(key.trim());
                }
                // A list of processors has commas of its own.
                (None, Some("cpus")) => limits.cpus.push(cpus(word)?),
                (None, _) => return wrong(format!("{word:?} is not like mem=2G; there are {KEYS}")),
            }
        }
        Ok(limits)
    }
}

impl Limits {
    /// Sets one of them.
    ///
    /// # Errors
    /// There is no such limit, or it has no such value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LimitError> {
        match key {
            "mem" => self.memory = Some(at_least(MEMORY_MIN, bytes(key, value)?)?),
            "cpu" => self.cpu = Some(percent(value)?),
            "tasks" => self.tasks = Some(number(key, value, 1, i64::from(i32::MAX))?),
            "disk" => self.disk = Some(bytes(key, value)?),
            "nofile" => self.open_files = Some(number(key, value, 16, 1 << 30)?),
            "core" => self.core = Some(bytes(key, value)?),
            "fsize" => self.file_size = Some(bytes(key, value)?),
            "nice" => self.nice = Some(number(key, value, 0, 19)?),
            "cpus" => self.cpus = vec![cpus(value)?],
            _ => return wrong(format!("no limit {key:?}; there are {KEYS}")),
        }
        Ok(())
    }

    /// These, and where they say nothing, those.
    #[must_use]
    pub fn or(self, those: &Self) -> Self {
        Self {
            memory: self.memory.or(those.memory),
            cpu: self.cpu.or(those.cpu),
            tasks: self.tasks.or(those.tasks),
            disk: self.disk.or(those.disk),
            open_files: self.open_files.or(those.open_files),
            core: self.core.or(those.core),
            file_size: self.file_size.or(those.file_size),
            nice: self.nice.or(those.nice),
            cpus: if self.cpus.is_empty() { those.cpus.clone() } else { self.cpus },
            best_effort: self.best_effort || those.best_effort,
        }
    }

    /// Whether nothing is bounded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self { best_effort: self.best_effort, ..Self::default() }
    }
}

/// As [`FromStr`] takes it.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let mut say = |key: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{key}={value}")));
        };
        say("mem", self.memory.map(short));
        say("cpu", self.cpu.map(|percent| format!("{percent}%")));
        say("tasks", self.tasks.map(|n| n.to_string()));
        say("disk", self.disk.map(short));
        say("nofile", self.open_files.map(|n| n.to_string()));
        say("core", self.core.map(short));
        say("fsize", self.file_size.map(short));
        say("nice", self.nice.map(|n| n.to_string()));
        let range = |(first, last): &(u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let cpus = self.cpus.iter().map(range).collect::<Vec<_>>().join(",");
        say("cpus", (!cpus.is_empty()).then_some(cpus));
        f.write_str(&words.join(","))
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T, LimitError> {
    Err(LimitError(message.into()))
}

fn number<T: TryFrom<i64>>(key: &str, text: &str, least: i64, most: i64) -> Result<T, LimitError> {
    let parsed = text.parse::<i64>().ok().filter(|n| (least..=most).contains(n));
    parsed
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| LimitError(format!("{key} is a number from {least} to {most}, not {text:?}")))
}

fn percent(text: &str) -> Result<u32, LimitError> {
    number("cpu", text.strip_suffix('%').unwrap_or(text), 1, 100_000)
}

fn at_least(least: u64, bytes: u64) -> Result<u64, LimitError> {
    if bytes < least { wrong(format!("mem is at least {}", short(least))) } else { Ok(bytes) }
}

/// The unit of a size, in bytes.
const UNITS: [(&str, u32); 5] = [("T", 40), ("G", 30), ("M", 20), ("K", 10), ("", 0)];

/// A size like `2G`, `1.5G`, `512MiB` or `4096`.
fn bytes(key: &str, text: &str) -> Result<u64, LimitError> {
    let wrong = || LimitError(format!("{key} is a size like 2G or 512M, not {text:?}"));
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].trim_end_matches("iB").trim_end_matches('B').to_ascii_uppercase();
    let shift = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift).ok_or_else(wrong)?;
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let whole = whole.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).ok_or_else(wrong)?;
    let tenths = part.get(..part.len().min(3)).and_then(|p| p.parse::<u64>().ok()).ok_or_else(wrong)?;
    let scale = 10_u64.pow(u32::try_from(part.len().min(3)).unwrap_or(3));
    whole.checked_add(((tenths << shift) / scale).min(1 << shift)).ok_or_else(wrong)
}

/// The shortest way to write so many bytes exactly.
fn short(bytes: u64) -> String {
    let fits = |(_, shift): &&(&str, u32)| bytes != 0 && bytes.is_multiple_of(1 << shift);
    let (unit, shift) = UNITS.iter().find(fits).unwrap_or(&UNITS[4]);
    format!("{}{unit}", bytes >> shift)
}

fn cpus(text: &str) -> Result<(u16, u16), LimitError> {
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|n| *n <= CPU_MAX);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
    range.ok_or_else(|| LimitError(format!("cpus are like 0-3 or 0-1,4, not {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "mem=2G,cpu=150%,tasks=200,disk=10G,nofile=4096,core=0,fsize=1536M,nice=10,cpus=0-3,5,7-8";
        let limits: Limits = text.parse().unwrap();
        assert_eq!((limits.memory, limits.cpu, limits.nice), (Some(2 << 30), Some(150), Some(10)));
        assert_eq!(limits.cpus, [(0, 3), (5, 5), (7, 8)]);
        assert_eq!(limits.to_string(), text);
        assert_eq!("mem=1.5G".parse::<Limits>().unwrap().memory, Some(3 << 29));
        assert_eq!("mem=512MiB".parse::<Limits>().unwrap().memory, Some(512 << 20));
        assert!("".parse::<Limits>().unwrap().is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("memory=2G", "there are mem, cpu"),
            ("mem=lots", "size like 2G"),
            ("mem=1K", "at least 1M"),
            ("mem", "is not like mem=2G"),
            ("nice=-5", "0 to 19"),
            ("cpu=0%", "1 to 100000"),
            ("cpus=3-1", "like 0-3"),
            ("nofile=4", "16 to"),
            ("mem=99999999T", "size like 2G"),
        ] {
            let error = text.parse::<Limits>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn those_of_the_session_win() {
        let agent: Limits = "mem=1G,nice=5".parse().unwrap();
        let mine: Limits = "mem=2G".parse().unwrap();
        assert_eq!(mine.or(&agent).to_string(), "mem=2G,nice=5");
    }
}
