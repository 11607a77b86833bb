//! The end of an agent's usage limit.

use std::time::Duration;

use protocol::Timestamp;

/// Pause of an agent whose usage limit does not say when it ends, also if it meets the limit again. Limits of minutes
/// are over by then; for longer ones a failed retry costs little.
pub const UNKNOWN_LIMIT_PAUSE: Duration = Duration::from_secs(15 * 60);

/// First pause before an agent is retried that met its limit again when it was told to continue: the
/// displayed time has no seconds, and the vendor's clock may differ.
const RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Longest of these pauses, which double.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(10 * 60);

/// Time until which a limited agent gets no prompt: the end of its limit, which its report made at `at` may tell in words.
/// If that has passed and the agent still meets its limit, the end of a pause that doubles.
pub(crate) fn limited_until(
    until: Option<Timestamp>,
    error: &str,
    (resumes, at, now): (u32, Timestamp, Timestamp),
) -> Timestamp {
    let Some(told) = until.or_else(|| agents::payload::limit_reset(error, at)) else {
        return now.after(UNKNOWN_LIMIT_PAUSE);
    };
    // An exact time is believed; one in words has no seconds.
    if resumes == 0 && (until.is_some() || told > now) {
        return told;
    }
    let pause = RETRY_PAUSE.saturating_mul(1 << resumes.saturating_sub(1).min(8)).min(RETRY_PAUSE_MAX);
    told.max(now.after(pause))
}
