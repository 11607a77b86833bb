//! Messages: durable units of work for a session.

use serde::{Deserialize, Serialize};

use crate::ids::{MessageId, SessionId, Token};
use crate::time::Timestamp;

/// The longest body, in bytes.
pub const BODY_MAX: usize = 256 * 1024;
/// The longest idempotency key, in bytes.
pub const KEY_MAX: usize = 256;
/// The kind that goes to the agent in the pane.
pub const PROMPT: &str = "prompt";

/// A message without its body, which only the store keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sequence number of the event that queued it.
    pub id: MessageId,
    /// Whose it is.
    pub session: SessionId,
    /// Counts the session's messages from 1.
    pub ordinal: u64,
    /// [`PROMPT`], or any name.
    pub kind: String,
    /// Idempotency key: a second message of the session with it is the first one again.
    pub key: Option<String>,
    /// Who sent it: `cli`, or what the client called itself.
    pub origin: String,
    /// Bytes of the body.
    pub size: u32,
    /// Digest of the body, to tell a repeat from a conflict.
    pub digest: u64,
    /// Whether it is followed by Enter when it is typed.
    pub enter: bool,
    /// Where it is.
    pub state: MessageState,
    /// How often it was given out.
    pub attempts: u32,
    /// The token under which it was last given out.
    pub token: Option<Token>,
    /// When it was queued.
    pub created_at: Timestamp,
    /// When it is given up while still waiting.
    pub expires_at: Option<Timestamp>,
    /// When its state last changed.
    pub changed_at: Timestamp,
    /// Why it is where it is: `unconfirmed`, `daemon stopped while typing`, …
    pub reason: Option<String>,
}

/// Where a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// Waits.
    Queued,
    /// A worker holds it.
    Claimed,
    /// On its way into the pane; a crash here leaves it in doubt.
    Typing,
    /// Typed and entered.
    Typed,
    /// The agent confirmed it.
    Accepted,
    /// It may or may not have been typed; never typed again by itself.
    InDoubt,
    /// Worked.
    Done,
    /// Given up, with a reason.
    Dead,
    /// Cancelled by a user.
    Cancelled,
    /// Its time ran out.
    Expired,
}

impl MessageState {
    /// Whether nothing more will happen to it.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled | Self::Expired)
    }

    /// Whether it holds its lane: the next message of its kind waits for it.
    #[must_use]
    pub fn in_flight(self) -> bool {
        matches!(self, Self::Claimed | Self::Typing | Self::Typed | Self::Accepted | Self::InDoubt)
    }
}
