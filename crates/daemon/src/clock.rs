//! The only clock of the daemon, the only source of chance.

use std::time::{Instant, SystemTime};

use pool::deadlines::Mono;
use protocol::time::millis;
use protocol::{Tag, Timestamp};

/// Now.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since))
}

/// Now on the clock that only goes forward, and stands still while the machine sleeps.
pub(crate) fn mono(started: Instant) -> Mono {
    Mono(millis(started.elapsed()))
}

/// A time in UTC, for people.
pub(crate) fn text(at: Timestamp) -> String {
    // Later than anything that can be written is as good as the latest that can.
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(at.0.min(LATEST_MS));
    humantime::format_rfc3339_seconds(time).to_string()
}

/// The end of the year 9999.
const LATEST_MS: u64 = 253_402_300_799_000;

/// A time as `YYYYmmdd-HHMMSS` in UTC, for names.
pub(crate) fn stamp(at: Timestamp) -> String {
    let text = text(at);
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    format!("{}-{}", &digits[..8], &digits[8..])
}

/// A fresh random tag.
///
/// # Errors
/// What the system's random source reports.
pub(crate) fn tag() -> std::io::Result<Tag> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(Tag(bytes))
}

/// A fresh random UUID, version 4.
///
/// # Errors
/// What the system's random source reports.
pub(crate) fn uuid() -> std::io::Result<String> {
    let Tag(mut bytes) = tag()?;
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = Tag(bytes).to_string();
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_sort_like_times() {
        assert_eq!(stamp(Timestamp(1_700_000_000_000)), "20231114-221320");
        assert_ne!(tag().unwrap(), tag().unwrap());
        let uuid = uuid().unwrap();
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    }
}
