//! Messages: durable units of work for a session.

use serde::{Deserialize, Serialize};

use crate::ids::{GeneratorId, MessageId, OpId, ProcId, SessionId, Token};
use crate::text::OsBytes;
use crate::time::Timestamp;

/// The longest body, in bytes.
pub const BODY_MAX: usize = 256 * 1024;
/// The longest idempotency key, in bytes.
pub const KEY_MAX: usize = 256;
/// The longest result of a worker, in bytes.
pub const RESULT_MAX: usize = 64 * 1024;
/// The longest reason that a worker gives, in bytes.
pub const REASON_MAX: usize = 1024;
/// The longest name of a kind, in bytes: named like a session, `^[a-z0-9][a-z0-9_-]*$`.
pub const KIND_MAX: usize = 32;
/// The kind that goes to the agent in the pane.
pub const PROMPT: &str = "prompt";
/// How many messages may follow from one another: a message whose cause is this far down a chain is refused.
pub const HOPS_MAX: u8 = 16;

/// A message without its body, which only the store keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sequence number of the event that queued it.
    pub id: MessageId,
    /// Whose it is.
    pub session: SessionId,
    /// Counts the session's messages from 1.
    pub ordinal: u64,
    /// [`PROMPT`], or any name: messages of a session with the same kind are worked one after the other.
    pub kind: String,
    /// Idempotency key: a second message of the session with it is the first one again.
    pub key: Option<String>,
    /// The operation that queued it: its repeat is answered with this message.
    pub op: Option<OpId>,
    /// Who sent it: `cli`, `session:sess_N`, or what the client called itself.
    pub origin: String,
    /// The message that was being worked when this one was sent, where the sender says so.
    pub cause: Option<MessageId>,
    /// How many messages lie behind it in a chain of causes.
    pub hops: u8,
    /// Higher is worked first; within one priority, first come first served.
    pub priority: i8,
    /// Bytes of the body.
    pub size: u32,
    /// Digest of the body, to tell a repeat from a conflict.
    pub digest: u64,
    /// Whether it is followed by Enter when it is typed.
    pub enter: bool,
    /// How often it could be given out when it was queued; the configuration in force decides.
    pub max_attempts: u32,
    /// When it was queued.
    pub created_at: Timestamp,
    /// When it is given up while still waiting.
    pub expires_at: Option<Timestamp>,
    /// Where it is.
    pub status: MessageStatus,
    /// What happened to it since it was queued, oldest first; the last one is how it is now. Only where one
    /// message is shown, at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
}

impl Message {
    /// When it was last begun to be typed, where its steps are there and tell.
    #[must_use]
    pub fn typing_began(&self) -> Option<Timestamp> {
        let typing = self.steps.iter().rev().find(|step| step.state == MessageState::Typing);
        typing.map(|step| step.at)
    }

    /// When it was last suspended, unless it is sent from the start since: its agent has its text already, and is only told
    /// to go on.
    #[must_use]
    pub fn suspended_at(&self) -> Option<Timestamp> {
        suspended_at(&self.steps)
    }
}

/// The same of the steps of a message.
#[must_use]
pub fn suspended_at(steps: &[Step]) -> Option<Timestamp> {
    let anew = |step: &&Step| step.state == MessageState::Queued && step.attempts == 0;
    let mut since = steps.iter().rev().take_while(|step| !anew(step));
    since.find(|step| step.state == MessageState::Suspended).map(|step| step.at)
}

/// The most steps that are remembered of a message; of more, the first and the newest.
pub const STEPS_MAX: usize = 24;

/// What changes of a message. A whole new value each time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageStatus {
    /// Where it is.
    pub state: MessageState,
    /// How often it was given out.
    pub attempts: u32,
    /// The token under which it was last given out; none where it was taken away since.
    pub token: Option<Token>,
    /// Who holds it, while a worker does.
    pub holder: Option<Holder>,
    /// Not given out again before.
    pub not_before: Option<Timestamp>,
    /// When it came to be so.
    pub changed_at: Timestamp,
    /// Why it is where it is: `unconfirmed`, `daemon stopped while typing`, …
    pub reason: Option<String>,
    /// What its worker made of it.
    pub result: Option<OsBytes>,
}

/// Who holds a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The generator, where it registered as one.
    pub generator: Option<GeneratorId>,
    /// Its process, where the system tells.
    pub process: Option<ProcId>,
    /// How long it may be silent, in milliseconds.
    pub lease_ms: u64,
    /// The operation that claimed it: its repeat is answered with the same claim.
    pub op: Option<OpId>,
}

/// A step in a message's life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub at: Timestamp,
    /// Where it came to be.
    pub state: MessageState,
    /// How often it had been given out.
    pub attempts: u32,
    /// Why.
    pub reason: Option<String>,
}

impl MessageStatus {
    /// It as a step.
    #[must_use]
    pub fn step(&self) -> Step {
        let (at, state, attempts) = (self.changed_at, self.state, self.attempts);
        Step { at, state, attempts, reason: self.reason.clone() }
    }

    /// Whether it was queued anew by a user, as if nothing had happened: no token and no attempt is left.
    #[must_use]
    pub fn is_anew(&self) -> bool {
        self.state == MessageState::Queued && self.token.is_none() && self.attempts == 0
    }

    /// The word for how it came to be so (`poolctl events`, `--kind`).
    #[must_use]
    pub fn event_kind(&self) -> &'static str {
        match self.state {
            MessageState::Queued if self.is_anew() => "message_retried",
            MessageState::Queued if self.not_before.is_none() => "message_released",
            MessageState::Queued => "message_failed",
            MessageState::Claimed => "message_claimed",
            MessageState::Typing => "message_typing",
            MessageState::Typed => "message_typed",
            MessageState::Accepted => "message_accepted",
            MessageState::InDoubt => "message_in_doubt",
            MessageState::Done => "message_done",
            MessageState::Dead => "message_dead",
            MessageState::Cancelled => "message_cancelled",
            MessageState::Expired => "message_expired",
            MessageState::Revoking => "message_revoking",
            MessageState::Suspended => "message_suspended",
        }
    }
}

/// Where a message is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// Waits.
    #[default]
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
    /// Taken away from a worker that lives on: not given out again before that one is proved gone.
    Revoking,
    /// The turn that it began failed by an outage: it waits again in the same commit, and its agent is told to go on.
    Suspended,
}

impl MessageState {
    /// Whether nothing more will happen to it by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled | Self::Expired)
    }

    /// Whether it was typed, or may have been, and nothing confirmed that.
    #[must_use]
    pub fn is_unconfirmed(self) -> bool {
        matches!(self, Self::Typed | Self::InDoubt)
    }

    /// Whether it holds its lane: the next message of its kind waits for it.
    #[must_use]
    pub fn in_flight(self) -> bool {
        !self.is_final() && self != Self::Queued
    }
}

/// A message that was given out, with its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The message; the token of the claim is in its status.
    pub message: Message,
    /// Its body.
    pub body: OsBytes,
}

/// What is known of the failures of one kind of a session's messages, once there is one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Attempts that failed since the last that did not.
    pub failures: u32,
    /// Since when nothing of the kind is given out, but for a probe now and then.
    pub opened_at: Option<Timestamp>,
    /// When the next probe is given out.
    pub probe_at: Option<Timestamp>,
    /// Why the last attempt failed.
    pub reason: Option<String>,
}

impl Breaker {
    /// Whether it holds messages back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.opened_at.is_some()
    }
}
