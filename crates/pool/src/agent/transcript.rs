//! The facts that no hook reported, as an agent's own record of the conversation shows them.

use std::time::Duration;

use agents::Adapter;
use agents::prompt::{TextMatch, compare};
use agents::transcript::RecordedPrompt;
use protocol::{Activity, ActivityState, Timestamp};

use crate::agent::hook_inputs::is_before;
use crate::clock::moment_of;
use crate::pool::Pool;

/// Time for which a hook may lag behind the record of a turn's end.
const HOOK_LIMIT: Duration = Duration::from_secs(3);

/// True if an entry of the record with the time `at` is from before another time.
pub fn is_recorded_before(pool: &Pool, now: Timestamp, at: Timestamp, than: Timestamp) -> bool {
    is_before(pool, (moment_of(pool.clock(), at, now), now), than)
}

/// Returns the entry of the record for a text that was typed at `typed_at`. An entry from before that time belongs to
/// an earlier prompt with the same text.
pub fn recorded_prompt<'a>(
    pool: &Pool,
    now: Timestamp,
    (adapter, text, typed_at): (Adapter, &str, Timestamp),
    said: &'a [RecordedPrompt],
) -> Option<(Timestamp, &'a str)> {
    let is_it = |said: &&RecordedPrompt| {
        // A prompt that waits for the running turn is recorded again when it is taken up.
        !said.queued
            && said.at.is_some_and(|at| !is_recorded_before(pool, now, at, typed_at))
            && compare(adapter, text, &said.text, false) == TextMatch::Exact
    };
    let said = said.iter().find(is_it)?;
    Some((said.at?, said.text.as_str()))
}

/// Returns the time since which an agent is at rest, if its record has the end of its present turn at `ended_at` and no
/// hook reports it. `known` is its activity, `heard_at` the time of its last report, and `accepted_at` that of a prompt
/// that it has taken and not worked.
pub fn recorded_end(
    pool: &Pool,
    now: Timestamp,
    (known, heard_at, accepted_at): (&Activity, Option<Timestamp>, Option<Timestamp>),
    ended_at: Timestamp,
) -> Option<Timestamp> {
    let is_since = |at| !is_recorded_before(pool, now, ended_at, at);
    match known.state {
        ActivityState::Idle | ActivityState::Unknown | ActivityState::Error => {
            accepted_at.is_some_and(is_since).then_some(ended_at)
        }
        // The rest begins no earlier than the last hook report, which may have come a moment after the event in it.
        ActivityState::Busy if is_since(known.since) && pool.age(now, ended_at) >= HOOK_LIMIT => {
            Some(pool.latest(now, heard_at.into_iter().chain([known.since, ended_at])))
        }
        ActivityState::Busy | ActivityState::Attention => None,
    }
}
