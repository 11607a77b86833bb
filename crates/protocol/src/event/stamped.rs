//! Events in the journal.

use serde::{Deserialize, Serialize};

use super::fact::Event;
use crate::ids::Seq;
use crate::time::Timestamp;

/// An event with its position in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped {
    /// The position; for an event that is never in the journal, that of the previous event.
    pub seq: Seq,
    /// The time of the decision.
    pub at: Timestamp,
    /// The event.
    pub event: Event,
}
