//! Times and durations as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use protocol::Timestamp;
pub(crate) use protocol::time::millis;

use crate::show::out::Style;

/// The last millisecond of the year 9999, the end of RFC 3339.
const LAST: u64 = 253_402_300_799_999;
/// Maximum duration in a flag, 100 years: added to any present time it does not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// Returns the present time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since).min(LAST))
}

/// Formats a time as RFC 3339 with milliseconds, in UTC.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let at = UNIX_EPOCH + Duration::from_millis(at.0.min(LAST));
    humantime::format_rfc3339_millis(at).to_string()
}

/// As [`rfc3339`], of seconds since the Unix epoch, which tmux reports.
pub(crate) fn rfc3339_of_seconds(seconds: u64) -> String {
    rfc3339(Timestamp(seconds.saturating_mul(1000)))
}

/// Formats a past time: as its age on a terminal, else exactly.
pub(crate) fn when(at: Timestamp, style: Style, now: Timestamp) -> String {
    if style.terminal { format!("{} ago", short(now.since(at))) } else { rfc3339(at) }
}

/// Formats a future time: as the time until then on a terminal, else exactly.
pub(crate) fn due(at: Timestamp, style: Style, now: Timestamp) -> String {
    if style.terminal { until(at, now) } else { rfc3339(at) }
}

/// Formats the time until `at`: `in 12s`, or `now`.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> String {
    match at.since(now) {
        left if left.is_zero() => "now".to_owned(),
        left => format!("in {}", short(left)),
    }
}

/// Formats a duration in one unit, rounded down: `3s`, `5m`, `2h`, `9d`.
pub(crate) fn short(duration: Duration) -> String {
    match duration.as_secs() {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m", s / 60),
        s @ 3600..172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

/// As [`short`], with a tenth of a second below one minute: `1.2s`.
pub(crate) fn precise(duration: Duration) -> String {
    if duration < Duration::from_secs(60) {
        format!("{:.1}s", duration.as_secs_f64())
    } else {
        short(duration)
    }
}

/// Formats a duration exactly, in the form of the flags: `1m 30s`.
pub(crate) fn exact(duration: Duration) -> String {
    humantime::format_duration(duration).to_string()
}

/// Parses a time in a flag: RFC 3339, in UTC unless its offset follows, or its age.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_time(text: &str) -> Result<Timestamp, String> {
    let (time, offset) = split_offset(text).unwrap_or((text, 0));
    if let Ok(at) = humantime::parse_rfc3339_weak(time) {
        let since = at.duration_since(UNIX_EPOCH).map_err(|_| "before 1970".to_owned())?;
        return Ok(Timestamp(millis(since).saturating_add_signed(-offset)));
    }
    let age = parse_duration(text)
        .map_err(|_| "write how long ago, like 90s or 2h, or a time like 2026-11-22T10:00:00Z".to_owned())?;
    Ok(Timestamp(now().0.saturating_sub(millis(age))))
}

/// Splits a time from its offset to UTC, like `+02:00`, in milliseconds.
fn split_offset(text: &str) -> Option<(&str, i64)> {
    let (time, offset) = text.split_at_checked(text.len().checked_sub("+02:00".len())?)?;
    let (hours, minutes) = offset.get(1..)?.split_once(':').filter(|_| time.contains(':'))?;
    let minutes = hours.parse::<u32>().ok()? * 60 + minutes.parse::<u32>().ok().filter(|m| *m < 60)?;
    let ms = i64::from(minutes) * 60_000;
    match &offset[..1] {
        "+" => Some((time, ms)),
        "-" => Some((time, -ms)),
        _ => None,
    }
}

/// Parses a duration in a flag: `90s`, `2h 30m`, or a number of seconds.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds =
        text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
    let duration = match seconds {
        Some(seconds) => Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
        None => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; write it like 500ms, 90s or 2h"))?,
    };
    if duration > LONGEST { Err("longer than 100 years".into()) } else { Ok(duration) }
}

/// As [`parse_duration`], without zero.
///
/// # Errors
/// A sentence for the user.
pub(crate) fn parse_positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("it must be longer than 0".into()),
        duration => Ok(duration),
    }
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
    fn durations_have_one_unit() {
        let seconds = |s: u64| short(Duration::from_secs(s));
        let durations = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(seconds);
        assert_eq!(durations, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
        let precisely = [1240, 59_940, 125_000].map(|ms| precise(Duration::from_millis(ms)));
        assert_eq!(precisely, ["1.2s", "59.9s", "2m"]);
        assert_eq!(exact(Duration::from_secs(90)), "1m 30s");
    }

    #[test]
    fn times_are_relative_on_a_terminal() {
        let (terminal, piped) = (Style { terminal: true, ..Style::default() }, Style::default());
        assert_eq!(when(Timestamp(0), terminal, Timestamp(60_000)), "1m ago");
        assert_eq!(when(Timestamp(9000), terminal, Timestamp(0)), "0s ago", "a clock that went back");
        assert_eq!(due(Timestamp(60_000), terminal, Timestamp(0)), "in 1m");
        assert_eq!(due(Timestamp(0), terminal, Timestamp(1)), "now");
        let exactly = "1970-01-01T00:00:00.000Z";
        assert_eq!(when(Timestamp(0), piped, Timestamp(60_000)), exactly);
        assert_eq!(due(Timestamp(0), piped, Timestamp(60_000)), exactly);
    }

    #[test]
    fn a_time_may_have_an_offset() {
        let at = Ok(Timestamp(1_700_000_000_000));
        for same in [
            "2023-11-14T22:13:20Z",
            "2023-11-14 22:13:20",
            "2023-11-15T00:13:20+02:00",
            "2023-11-14T17:43:20-04:30",
        ] {
            assert_eq!(parse_time(same), at, "{same}");
        }
        for wrong in ["2023-11-15T00:13:20+0a:00", "2023-11-15+02:00", "2023-11-15T00:13:20Z+02:00x", "ü2:00"]
        {
            assert!(parse_time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("3153600000"), Ok(LONGEST));
        for long in ["3153600001", "18446744073709551615", "18446744073709551615s", "101years"] {
            assert!(parse_duration(long).is_err(), "{long}");
        }
        assert!(
            parse_positive_duration("0").is_err()
                && parse_positive_duration("1s") == Ok(Duration::from_secs(1))
        );
        assert!(
            parse_duration("soon").is_err() && parse_duration("-1").is_err() && parse_duration("").is_err()
        );
    }
}
