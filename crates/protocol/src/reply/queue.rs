//! Answers about queues.

use serde::{Deserialize, Serialize};

use crate::ids::{GeneratorId, ProcId, SessionId};
use crate::message::{Breaker, Message};
use crate::request::Held;
use crate::text::Name;
use crate::time::Timestamp;

/// `send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The message.
    pub message: Message,
    /// The open breaker that holds its kind back, where one does.
    pub held_back: Option<Breaker>,
}

/// A registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The generator's number.
    pub generator: GeneratorId,
    /// The session whose messages it works.
    pub session: SessionId,
    /// How long it may be silent about a message, in milliseconds.
    pub lease_ms: u64,
}

/// Who works on what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GeneratorView {
    /// Its number; none for the agent in a session's pane, and for a client that claims by itself.
    pub id: Option<GeneratorId>,
    /// Which it is in its line: it grows with each that takes another's place, and what an older one says is not
    /// taken. For an agent the number of its session's incarnation.
    pub generation: u64,
    /// The session.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// `agent`, `worker` or `client`.
    pub role: String,
    /// The kinds that it works; none for all but prompts.
    pub kinds: Vec<String>,
    /// Its process, where the system tells.
    pub process: Option<ProcId>,
    /// Since when.
    pub since: Timestamp,
    /// When it last spoke; for an agent, when its session was last active.
    pub last_activity_at: Timestamp,
    /// What it holds.
    pub holds: Vec<HeldView>,
}

/// What a generator holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldView {
    /// Which message, under which token.
    pub held: Held,
    /// Its kind.
    pub kind: String,
    /// When the lease is over, while one runs.
    pub deadline_at: Option<Timestamp>,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Checked {
    /// Records read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What is wrong, each a sentence.
    pub problems: Vec<String>,
    /// Records that were put aside, now or earlier: table, key and reason.
    pub quarantined: Vec<String>,
}

/// A kind of messages that is held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerView {
    /// Whose messages.
    pub session: SessionId,
    /// The session's name.
    pub name: Name,
    /// Their kind.
    pub kind: String,
    /// Since when and why.
    pub breaker: Breaker,
}
