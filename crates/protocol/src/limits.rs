//! Resource limits of a session's processes, and their text form: `mem=2G,cpu=150%,tasks=200`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Resource limits of a session's processes. An absent value is no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    /// `mem`: memory of all processes, in bytes.
    pub memory: Option<u64>,
    /// `cpu`: share of one processor in percent; 150 is one and a half.
    pub cpu: Option<u32>,
    /// `tasks`: number of processes and threads.
    pub tasks: Option<u32>,
    /// `disk`: bytes below the session's directory.
    pub disk: Option<u64>,
    /// `nofile`: open files of each process.
    pub open_files: Option<u64>,
    /// `core`: size of a core file, in bytes.
    pub core: Option<u64>,
    /// `fsize`: size of a file that a process writes, in bytes.
    pub file_size: Option<u64>,
    /// `nice`: 0 to 19; a higher value yields to others.
    pub nice: Option<i32>,
    /// `cpus`: the processors allowed, as first and last of each range.
    pub cpus: Vec<(u16, u16)>,
    /// Starts the session even if some of these limits cannot be enforced; `show` names them.
    pub best_effort: bool,
}

/// The error in a text of limits, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitError(String);

/// The highest processor number of a kernel (`CONFIG_NR_CPUS` of every distribution).
const CPU_MAX: u16 = 8191;
/// Minimum memory limit, in bytes: with less, the program is killed before it is loaded.
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
                // The list of processors contains commas itself.
                (None, Some("cpus")) => limits.cpus.push(parse_cpus(word)?),
                (None, _) => return invalid(format!("{word:?} is not like mem=2G; there are {KEYS}")),
            }
        }
        Ok(limits)
    }
}

impl Limits {
    /// Sets the limit `key`.
    ///
    /// # Errors
    /// An unknown key, or an invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), LimitError> {
        match key {
            "mem" => self.memory = Some(at_least(MEMORY_MIN, parse_size(key, value)?)?),
            "cpu" => self.cpu = Some(parse_percent(value)?),
            "tasks" => self.tasks = Some(parse_number(key, value, 1, i64::from(i32::MAX))?),
            "disk" => self.disk = Some(parse_size(key, value)?),
            "nofile" => self.open_files = Some(parse_number(key, value, 16, 1 << 30)?),
            "core" => self.core = Some(parse_size(key, value)?),
            "fsize" => self.file_size = Some(parse_size(key, value)?),
            "nice" => self.nice = Some(parse_number(key, value, 0, 19)?),
            "cpus" => self.cpus = vec![parse_cpus(value)?],
            _ => return invalid(format!("no limit {key:?}; there are {KEYS}")),
        }
        Ok(())
    }

    /// Replaces absent limits by those of `those`.
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

    /// True if nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self { best_effort: self.best_effort, ..Self::default() }
    }
}

/// The form that [`FromStr`] parses.
impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = Vec::new();
        let mut say = |key: &str, value: Option<String>| {
            words.extend(value.map(|value| format!("{key}={value}")));
        };
        say("mem", self.memory.map(format_size));
        say("cpu", self.cpu.map(|percent| format!("{percent}%")));
        say("tasks", self.tasks.map(|n| n.to_string()));
        say("disk", self.disk.map(format_size));
        say("nofile", self.open_files.map(|n| n.to_string()));
        say("core", self.core.map(format_size));
        say("fsize", self.file_size.map(format_size));
        say("nice", self.nice.map(|n| n.to_string()));
        let range = |(first, last): &(u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        let cpus = self.cpus.iter().map(range).collect::<Vec<_>>().join(",");
        say("cpus", (!cpus.is_empty()).then_some(cpus));
        f.write_str(&words.join(","))
    }
}

fn invalid<T>(message: impl Into<String>) -> Result<T, LimitError> {
    Err(LimitError(message.into()))
}

fn parse_number<T: TryFrom<i64>>(key: &str, text: &str, least: i64, most: i64) -> Result<T, LimitError> {
    let parsed = text.parse::<i64>().ok().filter(|n| (least..=most).contains(n));
    parsed
        .and_then(|n| T::try_from(n).ok())
        .ok_or_else(|| LimitError(format!("{key} is a number from {least} to {most}, not {text:?}")))
}

fn parse_percent(text: &str) -> Result<u32, LimitError> {
    parse_number("cpu", text.strip_suffix('%').unwrap_or(text), 1, 100_000)
}

fn at_least(least: u64, bytes: u64) -> Result<u64, LimitError> {
    if bytes < least { invalid(format!("mem is at least {}", format_size(least))) } else { Ok(bytes) }
}

/// Suffixes of sizes with their binary shift, in bytes.
const UNITS: [(&str, u32); 5] = [("T", 40), ("G", 30), ("M", 20), ("K", 10), ("", 0)];

/// Parses a size such as `2G`, `1.5G`, `512MiB` or `4096`.
fn parse_size(key: &str, text: &str) -> Result<u64, LimitError> {
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

/// Formats a size exactly, in the shortest form.
fn format_size(bytes: u64) -> String {
    let fits = |(_, shift): &&(&str, u32)| bytes != 0 && bytes.is_multiple_of(1 << shift);
    let (unit, shift) = UNITS.iter().find(fits).unwrap_or(&UNITS[4]);
    format!("{}{unit}", bytes >> shift)
}

fn parse_cpus(text: &str) -> Result<(u16, u16), LimitError> {
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
