//! Messages: durable units of work for a session.

use serde::{Deserialize, Serialize};

use crate::event_kind::EventKind;
use crate::ids::{GeneratorId, MessageId, OpId, ProcId, SessionId, Tag, Token};
use crate::message_reason::MessageReason;
use crate::text::OsBytes;
use crate::time::Timestamp;

/// Maximum length of a body, in bytes.
pub const BODY_MAX: usize = 256 * 1024;
/// Maximum length of an idempotency key, in bytes.
pub const KEY_MAX: usize = 256;
/// Maximum length of a worker's result, in bytes.
pub const RESULT_MAX: usize = 64 * 1024;
/// Maximum length of a worker's reason, in bytes.
pub const REASON_MAX: usize = 1024;
/// Maximum length of a kind, in bytes. A kind follows the rule of session names: `^[a-z0-9][a-z0-9_-]*$`.
pub const KIND_MAX: usize = 32;
/// The kind of messages that are typed to the agent in the pane.
pub const PROMPT: &str = "prompt";
/// Maximum length of a chain of causes: a message whose cause is this far down a chain is refused.
pub const HOPS_MAX: u8 = 16;

/// A message without its body, which is kept in the store only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The sequence number of the event that queued it.
    pub id: MessageId,
    /// The session that it is for.
    pub session: SessionId,
    /// The number within the session, counted from 1.
    pub ordinal: u64,
    /// [`PROMPT`] or any other name. Messages of one session and kind are processed one after the other.
    pub kind: String,
    /// Idempotency key. Sending another message to the session with the same key yields this one.
    pub key: Option<String>,
    /// The operation that queued it. A retry of the operation is answered with this message.
    pub op: Option<OpId>,
    /// The sender: `cli`, `session:sess_N`, or the client's own name.
    pub origin: String,
    /// The message during whose processing this one was sent, if the sender says so.
    pub cause: Option<MessageId>,
    /// Number of messages before it in the chain of causes.
    pub hops: u8,
    /// Priority: higher is processed first; equal ones in the order in which they were queued.
    pub priority: i8,
    /// Size of the body, in bytes.
    pub size: u32,
    /// Digest of the body, to distinguish a retry from a conflict.
    pub digest: u64,
    /// True if Enter follows the typed text.
    pub enter: bool,
    /// The limit of attempts when it was queued. The limit in force is that of the configuration.
    pub max_attempts: u32,
    /// The time at which it was queued.
    pub created_at: Timestamp,
    /// The time at which it expires if it still waits.
    pub expires_at: Option<Timestamp>,
    /// The treatment of the message once it is in doubt; defaults to the configuration's.
    pub in_doubt: Option<InDoubt>,
    /// The changing part.
    pub status: MessageStatus,
    /// History since it was queued, oldest first and ending with the current status; at most [`STEPS_MAX`]
    /// steps. Filled in only where a single message is shown; of a listed one, with its acceptances alone.
    pub steps: Vec<Step>,
    /// The end of the lease of its claim, while one runs. Filled in only where a message is shown.
    pub deadline_at: Option<Timestamp>,
}

/// The treatment of a message if it is unknown whether it arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// It waits for a person, and those behind it wait with it.
    #[default]
    Hold,
    /// It is dead at once, and those behind it go on. It arrives at most once.
    Dead,
    /// It is typed again after a while, and may then arrive twice. It arrives at least once, unless all its
    /// attempts end in doubt.
    Retry,
}

impl Message {
    /// Returns the time at which typing last began, if the steps tell.
    pub fn typing_began(&self) -> Option<Timestamp> {
        let typing = self.steps.iter().rev().find(|step| step.state == MessageState::Typing);
        typing.map(|step| step.at)
    }

    /// Returns the time at which it was last suspended, unless it was queued from the start since. The agent
    /// of a suspended message has its text already and is only told to continue.
    pub fn suspended_at(&self) -> Option<Timestamp> {
        suspended_at(&self.steps)
    }
}

/// As [`Message::suspended_at`], from the steps of a message.
pub fn suspended_at(steps: &[Step]) -> Option<Timestamp> {
    let anew = |step: &&Step| step.state == MessageState::Queued && step.attempts == 0;
    let mut since = steps.iter().rev().take_while(|step| !anew(step));
    since.find(|step| step.state == MessageState::Suspended).map(|step| step.at)
}

/// Maximum number of steps remembered of a message: the first one and the newest.
pub const STEPS_MAX: usize = 24;

/// The changing part of a message. Each change replaces all of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageStatus {
    /// The state.
    pub state: MessageState,
    /// Number of attempts so far.
    pub attempts: u32,
    /// The token of the last attempt; absent if the message was taken back since.
    pub token: Option<Token>,
    /// The worker that holds the message.
    pub holder: Option<Holder>,
    /// The earliest time of the next attempt.
    pub not_before: Option<Timestamp>,
    /// The time of the last change.
    pub changed_at: Timestamp,
    /// The reason for the state.
    pub reason: Option<MessageReason>,
    /// The worker's result.
    pub result: Option<OsBytes>,
}

/// The worker that holds a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The id of its registration, if it registered as a generator.
    pub generator: Option<GeneratorId>,
    /// The process, if the system tells.
    pub process: Option<ProcId>,
    /// The lease, in milliseconds: the longest time without a heartbeat.
    pub lease_ms: u64,
    /// The operation that claimed the message. A retry of the operation is answered with the same claim.
    pub op: Option<OpId>,
    /// The incarnation of a worker of the pool that holds it.
    pub host: Option<Tag>,
}

/// An entry of a message's history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The time of the change.
    pub at: Timestamp,
    /// The new state.
    pub state: MessageState,
    /// Number of attempts before the change.
    pub attempts: u32,
    /// The reason.
    pub reason: Option<MessageReason>,
}

impl MessageStatus {
    /// Returns the status as a step.
    pub fn step(&self) -> Step {
        let (at, state, attempts) = (self.changed_at, self.state, self.attempts);
        Step { at, state, attempts, reason: self.reason.clone() }
    }

    /// True if the message was never handed out, or was taken back since: no agent and no worker has any part of it.
    pub fn is_unattempted(&self) -> bool {
        self.state == MessageState::Queued && self.token.is_none() && self.attempts == 0
    }

    /// True if a user has reset the message to its initial state.
    pub fn is_reset(&self) -> bool {
        let by_user = matches!(self.reason, Some(MessageReason::Retried | MessageReason::Hastened));
        self.is_unattempted() && by_user
    }

    /// Returns the kind of event that led to this status (`poolctl events`, `--kind`).
    pub fn event_kind(&self) -> EventKind {
        match self.state {
            MessageState::Queued if self.is_reset() => EventKind::MessageRetried,
            MessageState::Queued if self.not_before.is_none() => EventKind::MessageReleased,
            MessageState::Queued => EventKind::MessageFailed,
            MessageState::Claimed => EventKind::MessageClaimed,
            MessageState::Typing => EventKind::MessageTyping,
            MessageState::Typed => EventKind::MessageTyped,
            MessageState::Accepted => EventKind::MessageAccepted,
            MessageState::InDoubt => EventKind::MessageInDoubt,
            MessageState::Done => EventKind::MessageDone,
            MessageState::Dead => EventKind::MessageDead,
            MessageState::Cancelled => EventKind::MessageCancelled,
            MessageState::Expired => EventKind::MessageExpired,
            MessageState::Revoking => EventKind::MessageRevoking,
            MessageState::Suspended => EventKind::MessageSuspended,
        }
    }
}

/// The states of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// The message waits.
    #[default]
    Queued,
    /// A worker holds the message.
    Claimed,
    /// The text is being typed into the pane. After a crash, the pane's receipt tells whether it arrived; only if
    /// nothing tells is the message in doubt.
    Typing,
    /// The text and Enter were typed.
    Typed,
    /// The agent confirmed the message.
    Accepted,
    /// The text may or may not have been typed. It is typed again by itself only if its treatment is
    /// [`InDoubt::Retry`].
    InDoubt,
    /// The message was processed.
    Done,
    /// The message was given up, with a reason.
    Dead,
    /// A user cancelled the message.
    Cancelled,
    /// The message expired.
    Expired,
    /// The worker outlived the lease. The message is not claimable until the worker is proved gone.
    Revoking,
    /// An outage made the turn of the message fail. The message is queued again in the same commit, and the
    /// agent is told to continue.
    Suspended,
}

impl MessageState {
    /// True if no further change happens automatically.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Dead | Self::Cancelled | Self::Expired)
    }

    /// True if it was typed, or may have been, without a confirmation.
    pub fn is_unconfirmed(self) -> bool {
        matches!(self, Self::Typed | Self::InDoubt)
    }

    /// True if the next message of its kind has to wait for it.
    pub fn in_flight(self) -> bool {
        !self.is_final() && self != Self::Queued
    }
}

/// A claimed message with its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The message. The token of the claim is in its status.
    pub message: Message,
    /// The body.
    pub body: OsBytes,
}

/// The circuit breaker for one kind of messages of a session. It exists once an attempt has failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Number of failed attempts in a row.
    pub failures: u32,
    /// The time at which it opened. While open, messages of the kind are held back, except occasional probes.
    pub opened_at: Option<Timestamp>,
    /// The time of the next probe.
    pub probe_at: Option<Timestamp>,
    /// The reason of the last failure.
    pub reason: Option<String>,
}

impl Breaker {
    /// True if it holds messages back.
    pub fn is_open(&self) -> bool {
        self.opened_at.is_some()
    }
}
