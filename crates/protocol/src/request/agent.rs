//! Requests about agents.

use serde::{Deserialize, Serialize};

use crate::text::SessionRef;

/// `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approve {
    /// The session.
    pub session: SessionRef,
    /// Denies the request instead of granting it.
    pub deny: bool,
    /// The id of the request to answer; defaults to the one pending on arrival.
    #[serde(default, with = "crate::u64_string::optional")]
    pub ask: Option<u64>,
    /// The reason for a denial, for the agent.
    pub reason: Option<String>,
    /// One answer for each question that the agent asks.
    #[serde(default)]
    pub answers: Vec<String>,
}
