//! The machine's clocks as recorded by the daemon. They keep ages right when the wall clock is set or the
//! machine sleeps.

use serde::{Deserialize, Serialize};

use crate::ids::Seq;
use crate::time::Timestamp;

/// A reading of the wall clock and of the machine's awake time, with all differences found between them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// The wall clock at the reading. Taken at the daemon's start, at a detected step, with a commit whose
    /// events tell no time, and otherwise hourly.
    pub read_at: Timestamp,
    /// Time since boot without sleep at the reading, in milliseconds.
    pub awake_ms: u64,
    /// The last event in the journal at the reading.
    pub seq: Seq,
    /// Steps of the wall clock, oldest first.
    pub steps: Vec<ClockStep>,
}

/// A step of the wall clock: it was set, or the machine slept or was off. The time in between counts for no
/// age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// The time that the wall clock would have shown without the step.
    pub before: Timestamp,
    /// The time that it showed.
    pub after: Timestamp,
    /// The lowest and the highest time that the clock showed within this step: between the steps that were joined into
    /// it; or from `before` until the clock was found to be set back, if the moment of that is unknown. `None` for a
    /// single step whose moment is known.
    pub joined: Option<(Timestamp, Timestamp)>,
}

impl ClockStep {
    /// A single step.
    pub fn new(before: Timestamp, after: Timestamp) -> Self {
        Self { before, after, joined: None }
    }
}
