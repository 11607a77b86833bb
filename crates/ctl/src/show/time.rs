//! Times and durations as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::Timestamp;

/// The last millisecond of the year 9999, the end of what RFC 3339 can say.
const LAST: u64 = 253_402_300_799_999;
/// The longest duration that a flag takes, 100 years: adding it to any time there is does not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Now.
#[must_use]
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(LAST))
}

/// RFC 3339 with milliseconds, in UTC.
#[must_use]
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at.0.min(LAST));
    humantime::format_rfc3339_millis(at).to_string()
}

/// The same of seconds since the Unix epoch, as tmux counts.
#[must_use]
pub(crate) fn rfc3339_of_seconds(seconds: u64) -> String {
    rfc3339(Timestamp(seconds.saturating_mul(1000)))
}

/// One unit of how long ago it was: `3s`, `5m`, `2h`, `9d`.
#[must_use]
pub(crate) fn ago(at: Timestamp, now: Timestamp) -> String {
    short(now.since(at))
}

/// A duration in one unit.
#[must_use]
pub(crate) fn short(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// A time as a flag gives it: RFC 3339, or how long ago it was.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = humantime::parse_rfc3339_weak(text) {
        let since = at.duration_since(UNIX_EPOCH).map_err(|_| "before 1970".to_owned())?;
        return Ok(Timestamp(millis(since)));
    }
    let ago = parse(text)
        .map_err(|_| "write how long ago, like 90s or 2h, or a time like 2026-11-22T10:00:00Z".to_owned())?;
    Ok(Timestamp(now().0.saturating_sub(millis(ago))))
}

/// A duration as a flag gives it: `90s`, `2h 30m`, or a bare number of seconds.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write it like 500ms, 90s or 2h"))?,
    };
    if duration > LONGEST { Err("longer than 100 years".into()) } else { Ok(duration) }
}

/// The same, but not of no length.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn positive(text: &str) -> Result<Duration, String> {
    parse(text).and_then(|time| if time.is_zero() { Err("longer than 0".into()) } else { Ok(time) })
}

/// A duration in milliseconds, as the protocol has it.
#[must_use]
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc3339_with_milliseconds_in_utc() {
        assert_eq!(rfc3339(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Timestamp(1_700_000_000_123)), "2023-11-14T22:13:20.123Z");
        assert_eq!(rfc3339(Timestamp(u64::MAX)), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339_of_seconds(1_700_000_000), "2023-11-14T22:13:20.000Z");
    }

    #[test]
    fn ages_have_one_unit() {
        let seconds = |s: u64| ago(Timestamp(0), Timestamp(s * 1000));
        let ages = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(seconds);
        assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
        assert_eq!(ago(Timestamp(9000), Timestamp(0)), "0s", "a clock that went back");
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("3153600000"), Ok(LONGEST));
        for long in ["3153600001", "18446744073709551615", "18446744073709551615s", "101years"] {
            assert!(parse(long).is_err(), "{long}");
        }
        assert!(positive("0").is_err() && positive("1s") == Ok(Duration::from_secs(1)));
        assert!(parse("soon").is_err() && parse("-1").is_err() && parse("").is_err());
    }
}
