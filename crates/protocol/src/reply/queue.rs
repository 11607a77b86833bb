//! Answers about queues, workers and the database.

use serde::{Deserialize, Serialize};

use crate::ids::{GeneratorId, ProcId, SessionId};
use crate::message::{Breaker, Message};
use crate::request::ClaimRef;
use crate::text::Name;
use crate::time::Timestamp;

/// Numbers of messages by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct QueueCounts {
    /// Waiting messages.
    pub queued: u64,
    /// Messages in flight.
    pub claimed: u64,
    /// Messages in doubt.
    pub in_doubt: u64,
    /// Dead messages.
    pub dead: u64,
    /// The time at which the oldest waiting message was queued.
    pub oldest_at: Option<Timestamp>,
}

/// The answer to `send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The message.
    pub message: Message,
    /// The open circuit breaker that holds back messages of its kind.
    pub held_back: Option<Breaker>,
}

/// A registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The generator's id.
    pub generator: GeneratorId,
    /// The session whose messages it works on; absent if it may be several.
    pub session: Option<SessionId>,
    /// The lease of each claim, in milliseconds: the longest time without a heartbeat.
    pub lease_ms: u64,
}

/// A generator and its claims.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GeneratorView {
    /// The id; absent for the agent in a session's pane, and for a client that claims without registration.
    pub id: Option<GeneratorId>,
    /// The generation, which grows with each successor; reports of older generations are refused. For an
    /// agent it is the number of its session's incarnation.
    pub generation: u64,
    /// The session; absent for a worker of several. For a worker of the pool, the session of its host.
    pub session: Option<SessionId>,
    /// The session's name.
    pub name: Option<Name>,
    /// The sessions whose messages it works on, as text.
    pub sessions: String,
    /// The role: `agent`, `worker` or `client`.
    pub role: String,
    /// The kinds of messages that it works on; empty for all except prompts.
    pub kinds: Vec<String>,
    /// The process, if the system tells.
    pub process: Option<ProcId>,
    /// The time since which it exists.
    pub since: Timestamp,
    /// The time of its last request; for an agent, of its session's last activity.
    pub last_activity_at: Timestamp,
    /// The claims.
    pub holds: Vec<ClaimView>,
}

/// The claim of a generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimView {
    /// The message and the token.
    pub held: ClaimRef,
    /// The session of the message.
    pub session: SessionId,
    /// The kind of the message.
    pub kind: String,
    /// The end of the lease, while one runs.
    pub deadline_at: Option<Timestamp>,
}

/// The result of a check of the database.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checked {
    /// Number of records read.
    pub records: u64,
    /// Size of these records, in bytes.
    pub bytes: u64,
    /// Problems found, as sentences.
    pub problems: Vec<String>,
    /// Records quarantined now or earlier, with table, key and reason.
    pub quarantined: Vec<String>,
}

/// A kind of messages held back by a circuit breaker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerView {
    /// The session of the messages.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// The kind of the messages.
    pub kind: String,
    /// The breaker.
    pub breaker: Breaker,
}
