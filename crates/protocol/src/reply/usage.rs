//! Answers about resource usage.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::standstill::StuckLane;
use crate::text::Name;
use crate::usage::Usage;

/// The current resource usage of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageView {
    /// The session.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// The usage.
    pub usage: Usage,
    /// Its lanes of messages that have stood still for too long.
    pub stuck: Vec<StuckLane>,
}
