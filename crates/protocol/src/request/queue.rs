//! What is asked of queues.

use serde::{Deserialize, Serialize};

use crate::ids::{MessageId, Token};
use crate::message::MessageState;
use crate::text::{OsBytes, SessionRef};

/// `send`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Send {
    /// To which session.
    pub session: SessionRef,
    /// The text.
    pub body: OsBytes,
    /// Kind; `prompt` goes to the pane.
    pub kind: String,
    /// Idempotency key.
    pub key: Option<String>,
    /// Who sends.
    pub origin: String,
    /// Given up after this long, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// Whether Enter follows it.
    pub enter: bool,
    /// A prompt arrives as it is; else what its agent would take for a command or complete is defused.
    pub raw: bool,
    /// Higher is worked first.
    pub priority: i8,
    /// The message that is being worked where this one is sent.
    pub cause: Option<MessageId>,
    /// Start the session where it is over.
    pub wake: bool,
}

/// A generator's registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// Whose messages it works.
    pub session: SessionRef,
    /// The kinds that it works; none for all but prompts.
    pub kinds: Vec<String>,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Whose messages.
    pub session: SessionRef,
    /// The kinds; none for all but prompts. They come merged, in the order in which they were queued.
    pub kinds: Vec<String>,
    /// At most so many; 1 to [`CLAIM_MAX`]. Of one kind only one is in flight at a time.
    pub max: u32,
    /// How long the holder may be silent, in milliseconds; the configuration's lease where nothing is said.
    pub lease_ms: Option<u64>,
    /// How long to wait for the first, in milliseconds.
    pub wait_ms: u64,
}

/// The most messages of one claim; their bodies must fit a frame as well.
pub const CLAIM_MAX: u32 = 64;

/// A claim that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Which message.
    pub id: MessageId,
    /// The token of the claim.
    pub token: Token,
}

/// `ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// What was worked, under which token.
    pub held: Held,
    /// What came of it; at most [`crate::message::RESULT_MAX`] bytes.
    pub result: Option<OsBytes>,
}

/// `fail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fail {
    /// What was not worked, under which token.
    pub held: Held,
    /// Why; at most [`crate::message::REASON_MAX`] bytes.
    pub reason: String,
    /// What is to become of it.
    pub then: Then,
}

/// What is to become of a message that was not worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// Another attempt, after the configuration's back-off. It counts as a failure of its kind.
    Retry,
    /// Another attempt after this long, in milliseconds; the configuration's back-off where nothing is said. It is
    /// no failure of its kind: something else was not ready.
    Later(Option<u64>),
    /// None: it is dead.
    Dead,
    /// It was not begun: the attempt does not count.
    GiveBack,
}

/// `queue purge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purge {
    /// Whose messages.
    pub session: SessionRef,
    /// These; none for all in those states.
    pub ids: Vec<MessageId>,
    /// Those in these final states; none for all of them.
    pub states: Vec<MessageState>,
    /// Only those that have been over for this long, in milliseconds.
    pub older_ms: u64,
}

/// Which messages of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Whose.
    pub session: SessionRef,
    /// Only these kinds; none for all.
    pub kinds: Vec<String>,
    /// Only those in these states; none for all.
    pub states: Vec<MessageState>,
    /// At most so many: of those that are not over the first, of the others the newest.
    pub limit: u32,
}

/// `queue resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveMessage {
    /// Which message.
    pub id: MessageId,
    /// What it is to be.
    pub resolution: Resolution,
}

/// How an in-doubt message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// It was typed.
    Done,
    /// It was not; type it.
    Retry,
    /// Give it up.
    Dead,
}
