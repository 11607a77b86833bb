//! Parsers of configuration values.

use std::collections::BTreeMap;
use std::time::Duration;

use pool::session::STARTS_MAX;
use protocol::reap::{Action, Rule};
use protocol::{Size, bounds, millis};

use crate::config::sections::NEVER;

/// A problem of a configuration, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Returns the error with this message.
pub(crate) fn invalid<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

/// Parses a size of terminals, `COLSxROWS`.
pub(crate) fn size(text: &str) -> Result<Size, ConfigError> {
    let parsed =
        text.split_once('x').and_then(|(c, r)| Some(Size { cols: c.parse().ok()?, rows: r.parse().ok()? }));
    parsed
        .filter(|size| size.is_valid())
        .ok_or_else(|| ConfigError(format!("[tmux] size is like 200x50, each from 1 to 10000, not {text:?}")))
}

/// Checks a number of restarts.
pub(crate) fn restarts(key: &str, count: u32) -> Result<u32, ConfigError> {
    if (1..=STARTS_MAX).contains(&count) {
        return Ok(count);
    }
    invalid(format!("{key} is from 1 to {STARTS_MAX}, not {count}"))
}

/// Longest duration: its multiples, and its sums with times, are far from an overflow.
const DURATION_MAX: Duration = Duration::from_secs(36_500 * 24 * 3600);

/// Parses a duration like `5s`.
pub(crate) fn duration(key: &str, text: &str) -> Result<Duration, ConfigError> {
    let duration = humantime::parse_duration(text)
        .map_err(|e| ConfigError(format!("{key} is a duration like 5s, not {text:?}: {e}")))?;
    if duration > DURATION_MAX {
        invalid(format!("{key} is at most 36500d, not {text:?}"))
    } else {
        Ok(duration)
    }
}

/// Parses a duration of at least 100 ms.
pub(crate) fn interval(key: &str, text: &str) -> Result<Duration, ConfigError> {
    let interval = duration(key, text)?;
    if interval < Duration::from_millis(100) {
        invalid(format!("{key} is under 100ms"))
    } else {
        Ok(interval)
    }
}

/// Parses a lease.
pub(crate) fn lease(key: &str, text: &str) -> Result<Duration, ConfigError> {
    let lease = duration(key, text)?;
    bounds::check_lease(Some(millis(lease))).map_err(|why| ConfigError(format!("{key}: {}", why.message)))?;
    Ok(lease)
}

/// Parses a duration; `None` for `never`.
pub(crate) fn duration_or_never(key: &str, text: &str) -> Result<Option<Duration>, ConfigError> {
    if text == NEVER { Ok(None) } else { duration(key, text).map(Some) }
}

/// Parses a share like `90%`, in hundredths of a percent; `None` for `never`.
pub(crate) fn share_or_never(key: &str, text: &str) -> Result<Option<u32>, ConfigError> {
    if text == NEVER {
        return Ok(None);
    }
    let share = text.strip_suffix('%').and_then(|number| number.trim().parse().ok());
    share
        .filter(|share| (1..=100).contains(share))
        .map(|share: u32| Some(share * 100))
        .ok_or_else(|| ConfigError(format!("{key} is a share from 1% to 100%, or \"never\", not {text:?}")))
}

/// Parses a number of bytes like `64MiB`.
pub(crate) fn bytes(key: &str, text: &str) -> Result<u64, ConfigError> {
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

/// Refuses an action that a rule of the reaper cannot take.
pub(crate) fn check_actions(place: &str, actions: &BTreeMap<Rule, Action>) -> Result<(), ConfigError> {
    match actions.iter().find(|(rule, action)| !rule.allows(**action)) {
        Some((rule, action)) => {
            let (rule, allowed) = (rule.as_str(), rule.allowed_actions());
            invalid(format!("{place} {rule} is {allowed}, not {}", action.as_str()))
        }
        None => Ok(()),
    }
}

/// Returns the known word nearest to a mistyped one.
pub(crate) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let like = |word: &str| strsim::jaro_winkler(word, written);
    known.max_by(|a, b| like(a).total_cmp(&like(b)))
}
