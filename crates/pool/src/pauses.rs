//! Pauses that are on record by the times of their ends, and a step of the wall clock, which would end or lengthen
//! them.

use protocol::Event;
use protocol::clock::ClockStep;

use crate::agent::usage_limit::shift_unknown_limits;
use crate::pool::Pool;
use crate::queue::breaker::shift_probes;
use crate::session::restart_budget::shift_due_starts;

/// Moves the ends of these pauses by a step that is not yet on record, so that they keep their length.
#[must_use]
pub fn shift_pauses(pool: &Pool, step: ClockStep) -> Vec<Event> {
    [shift_due_starts, shift_probes, shift_unknown_limits]
        .into_iter()
        .flat_map(|shift| shift(pool, step))
        .collect()
}
