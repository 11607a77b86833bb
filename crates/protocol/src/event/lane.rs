//! Events of lanes: the messages of one kind of one session.

use serde::{Deserialize, Serialize};

use crate::ids::SessionId;
use crate::standstill::{Standstill, UnstuckReason};
use crate::time::Timestamp;

/// An event of a lane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaneEvent {
    /// Its messages have stood still for longer than they may.
    Stuck {
        /// The session of the messages.
        session: SessionId,
        /// The kind of messages.
        kind: String,
        /// The standstill of these messages.
        standstill: Standstill,
    },
    /// Its messages, which stood still, move again.
    Unstuck {
        /// The session of the messages.
        session: SessionId,
        /// The kind of messages.
        kind: String,
        /// The time since which they stood still.
        since: Timestamp,
        /// The reason.
        reason: UnstuckReason,
    },
}

impl LaneEvent {
    /// The session.
    pub fn session(&self) -> SessionId {
        match self {
            Self::Stuck { session, .. } | Self::Unstuck { session, .. } => *session,
        }
    }
}
