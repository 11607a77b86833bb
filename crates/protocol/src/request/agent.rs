//! What is asked about agents.

use serde::{Deserialize, Serialize};

use crate::text::SessionRef;

/// `approve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approve {
    /// Which session.
    pub session: SessionRef,
    /// No instead of yes.
    pub deny: bool,
    /// Only this request; where nothing is said, the one there is when this arrives.
    #[serde(default, with = "crate::wide::optional")]
    pub ask: Option<u64>,
    /// Why not, for the agent.
    pub reason: Option<String>,
    /// Where it asks questions: the answer to each.
    #[serde(default)]
    pub answers: Vec<String>,
}
