//! What a daemon knows of the machine's clocks, so that nothing becomes older by a clock that is set or by a machine
//! that sleeps.

use serde::{Deserialize, Serialize};

use crate::ids::Seq;
use crate::time::Timestamp;

/// The wall clock and the time that the machine was awake, as they were read together, and where they fell apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Clock {
    /// The wall clock, when a daemon started, a step was seen, or an hour had passed.
    pub read_at: Timestamp,
    /// Milliseconds since the machine's start without its sleep, at that moment.
    pub awake_ms: u64,
    /// The last event in the journal at that moment.
    pub seq: Seq,
    /// Oldest first.
    pub steps: Vec<ClockStep>,
}

/// The wall clock was set, or the machine slept or was off: the time between is no part of any age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockStep {
    /// The wall clock's time, had it not been set and had the machine been awake.
    pub before: Timestamp,
    /// Its time in fact.
    pub after: Timestamp,
}
