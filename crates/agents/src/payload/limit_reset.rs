//! The end of a usage limit, from the agent's message.

use std::time::{Duration, SystemTime};

use protocol::Timestamp;

const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;
/// Texts about usage limits, in lower case: Claude Code 2.1.197 ("You've hit your session limit"), earlier
/// versions ("usage limit reached|EPOCH"), Codex 0.169.0 ("You’ve hit your usage limit").
const LIMITS: [&str; 4] = ["usage limit", "session limit", "weekly limit", "rate limit"];
const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];

/// True if a message is about a usage limit.
pub(super) fn is_limit(text: &str) -> bool {
    let text = text.to_lowercase();
    LIMITS.into_iter().any(|words| text.contains(words))
}

/// Returns an absolute time in a message: `2026-11-22T15:00:00Z`, or seconds since 1970 after a `|`.
pub(super) fn absolute_time(text: &str) -> Option<Timestamp> {
    let seconds = || text.rsplit_once('|')?.1.trim().parse::<u64>().ok().filter(|s| *s > 1_000_000_000);
    let written = || text.split_whitespace().find_map(|word| rfc3339(word.trim_end_matches(['.', ',', ')'])));
    seconds().map(|s| Timestamp(s.saturating_mul(1000))).or_else(written)
}

/// Returns the end of a usage limit from the message of an agent at `now`: an absolute time, or
/// `resets 3pm (UTC)`, `resets 3:30pm (UTC)` or `resets Nov 24, 3pm (UTC)`, which is the next such time, or the
/// last one if it is less than two hours ago. None if the message has no time, or one of another zone than
/// UTC, since zones are not known here.
pub fn limit_reset(text: &str, now: Timestamp) -> Option<Timestamp> {
    absolute_time(text).or_else(|| {
        let lower = text.to_lowercase();
        let (_, after) = lower.split_once("resets ")?;
        let (when, zone) = after.split_once('(')?;
        if !zone.starts_with("utc)") && !zone.starts_with("etc/utc)") {
            return None;
        }
        let mut words = when.split([' ', ',']).filter(|word| !matches!(*word, "" | "at"));
        let first = words.next()?;
        match MONTHS.iter().position(|month| first.starts_with(month)) {
            Some(month) => {
                nearest_date(now, month + 1, words.next()?.parse().ok()?, time_of_day(words.next()?)?)
            }
            None => Some(nearest_time(now, time_of_day(first)?)),
        }
    })
}

/// Parses `3pm`, `3:30pm` or `12am` as milliseconds since midnight.
fn time_of_day(word: &str) -> Option<u64> {
    let (clock, noon) = match word.strip_suffix("pm") {
        Some(clock) => (clock, 12),
        None => (word.strip_suffix("am")?, 0),
    };
    let (hours, minutes) = clock.split_once(':').unwrap_or((clock, "0"));
    let (hours, minutes): (u64, u64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let is_valid = (1..=12).contains(&hours) && minutes < 60;
    is_valid.then(|| (hours % 12 + noon) * HOUR + minutes * 60_000)
}

/// The time after a reset during which a message without a date still means that reset, in milliseconds: a
/// service that refuses a few seconds later, or whose clock differs, does not mean tomorrow.
const RECENT: u64 = 2 * HOUR;

/// Returns the next occurrence of a time of day, or the last one if it is recent.
fn nearest_time(now: Timestamp, time_of_day: u64) -> Timestamp {
    let midnight = now.0 - now.0 % DAY;
    let days = [midnight.saturating_sub(DAY), midnight, midnight.saturating_add(DAY)];
    let mut times = days.map(|day| Timestamp(day.saturating_add(time_of_day))).into_iter();
    times.find(|at| at.0.saturating_add(RECENT) > now.0).unwrap_or(now)
}

/// Returns the next occurrence of a date, or the last one if it is recent.
fn nearest_date(now: Timestamp, month: usize, day: u64, time_of_day: u64) -> Option<Timestamp> {
    let date = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(now.0.min(DAY * 365 * 1000)))?;
    let year: u64 = humantime::format_rfc3339_seconds(date).to_string().get(..4)?.parse().ok()?;
    [year.saturating_sub(1), year, year + 1].into_iter().find_map(|year| {
        let midnight = rfc3339(&format!("{year:04}-{month:02}-{day:02}T00:00:00Z"))?;
        Some(Timestamp(midnight.0 + time_of_day)).filter(|then| then.0.saturating_add(RECENT) > now.0)
    })
}

pub(crate) fn rfc3339(text: &str) -> Option<Timestamp> {
    let time = humantime::parse_rfc3339(text).ok()?;
    let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(Timestamp(protocol::time::millis(since)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        rfc3339(text).unwrap()
    }

    #[test]
    fn the_next_time_of_day_is_meant_or_the_one_that_is_just_over() {
        let now = at("2026-11-22T14:05:00Z");
        let until = |text| limit_reset(text, now);
        let said = "rate_limit: You've hit your session limit · resets 3pm (UTC)";
        assert_eq!(until(said), Some(at("2026-11-22T15:00:00Z")));
        assert_eq!(until("resets 2:05pm (UTC)"), Some(at("2026-11-22T14:05:00Z")), "it is just over");
        assert_eq!(until("resets 12:06pm (UTC)"), Some(at("2026-11-22T12:06:00Z")));
        assert_eq!(until("resets 12:05pm (UTC)"), Some(at("2026-11-23T12:05:00Z")));
        assert_eq!(until("resets 2:30pm (UTC)"), Some(at("2026-11-22T14:30:00Z")));
        assert_eq!(until("resets 12am (UTC)"), Some(at("2026-11-23T00:00:00Z")));
        assert_eq!(until("resets 11:15am (Etc/UTC)"), Some(at("2026-11-23T11:15:00Z")));
        assert_eq!(
            limit_reset("resets 11:58pm (UTC)", at("2026-11-22T00:01:00Z")),
            Some(at("2026-11-21T23:58:00Z"))
        );
        assert_eq!(until("resets Nov 24, 3pm (UTC)"), Some(at("2026-11-24T15:00:00Z")));
        assert_eq!(until("resets Nov 22, 2pm (UTC)"), Some(at("2026-11-22T14:00:00Z")), "it is just over");
        assert_eq!(until("resets Nov 22, 11am (UTC)"), Some(at("2027-11-22T11:00:00Z")));
        assert_eq!(
            limit_reset("resets Dec 31, 11pm (UTC)", at("2027-01-01T00:30:00Z")),
            Some(at("2026-12-31T23:00:00Z"))
        );
        assert_eq!(until("resets January 2 at 9:00am (UTC)"), Some(at("2027-01-02T09:00:00Z")));
        assert_eq!(until("limit reached|1795359600"), Some(Timestamp(1_795_359_600_000)));
        assert_eq!(until("again at 2026-11-22T15:00:00Z."), Some(at("2026-11-22T15:00:00Z")));
    }

    #[test]
    fn what_cannot_be_known_is_not_guessed() {
        let now = at("2026-11-22T14:05:00Z");
        let unknown = [
            "",
            "resets",
            "resets 3pm",
            "resets 3pm (Europe/Berlin)",
            "resets 13pm (UTC)",
            "resets 3:60pm (UTC)",
            "resets Nov 31, 3pm (UTC)",
            "resets soon (UTC)",
            "try again at 2:59 PM.",
            "a|7",
        ];
        for text in unknown {
            assert_eq!(limit_reset(text, now), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_at_any_time_is_read(text in "\\PC{0,40}", hour in "[0-9:]{0,5}(am|pm)", now in any::<u64>()) {
            let _none = limit_reset(&text, Timestamp(now));
            for said in [format!("resets {hour} (UTC)"), format!("resets Dec 3, {hour} (UTC)")] {
                if let Some(until) = limit_reset(&said, Timestamp(now)) {
                    prop_assert!(until.0.saturating_add(RECENT) > now || now > u64::MAX - 2 * DAY);
                }
            }
        }
    }
}
