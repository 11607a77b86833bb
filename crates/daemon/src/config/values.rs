//! Values of the configuration: parsed, and refused with a sentence.

use std::time::Duration;

use protocol::session::Size;

/// What is wrong with a configuration, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

pub(crate) fn wrong<T>(message: impl Into<String>) -> Result<T, ConfigError> {
    Err(ConfigError(message.into()))
}

pub(crate) fn size(text: &str) -> Result<Size, ConfigError> {
    let parsed =
        text.split_once('x').and_then(|(c, r)| Some(Size { cols: c.parse().ok()?, rows: r.parse().ok()? }));
    parsed
        .filter(|s| s.cols > 0 && s.rows > 0)
        .ok_or_else(|| ConfigError(format!("[tmux] size is like 200x50, not {text:?}")))
}

pub(crate) fn duration(key: &str, text: &str) -> Result<Duration, ConfigError> {
    humantime::parse_duration(text)
        .map_err(|e| ConfigError(format!("{key} is a duration like 5s, not {text:?}: {e}")))
}

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

pub(crate) fn is_known<'a>(
    place: &str,
    key: &str,
    known: impl Iterator<Item = &'a String>,
) -> Result<(), ConfigError> {
    let known: Vec<&str> = known.map(String::as_str).collect();
    if known.contains(&key) {
        return Ok(());
    }
    let nearest = nearest(key, known.into_iter());
    wrong(format!("unknown key {place}{key}; did you mean {}?", nearest.unwrap_or("pool")))
}

/// What somebody meant who wrote this.
pub(crate) fn nearest<'a>(written: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let like = |word: &str| strsim::jaro_winkler(word, written);
    known.max_by(|a, b| like(a).total_cmp(&like(b)))
}
