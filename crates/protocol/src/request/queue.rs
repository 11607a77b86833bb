//! Requests about queues and workers.

use serde::{Deserialize, Serialize};

use crate::ids::{MessageId, Token};
use crate::limits::Limits;
use crate::message::{InDoubt, MessageState};
use crate::text::{OsBytes, SessionRef};
use crate::worker::{ClaimScope, WorkerSpec};

/// `send`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Send {
    /// The session.
    pub session: SessionRef,
    /// The body.
    pub body: OsBytes,
    /// The kind; `prompt` is typed into the pane.
    pub kind: String,
    /// Idempotency key.
    pub key: Option<String>,
    /// The sender.
    pub origin: String,
    /// Time after which the message expires while it waits, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// True if Enter follows the typed text.
    pub enter: bool,
    /// Types a prompt unchanged. Otherwise text that the agent would take for a command or complete is
    /// escaped.
    pub raw: bool,
    /// Priority: higher is processed first.
    pub priority: i8,
    /// The message that the sender is processing.
    pub cause: Option<MessageId>,
    /// Starts the session if it has ended.
    pub wake: bool,
    /// The treatment of a prompt once it is in doubt; defaults to the configuration's.
    pub in_doubt: Option<InDoubt>,
}

/// The registration of a generator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// The messages that it works on.
    #[serde(rename = "session")]
    pub scope: ClaimScope,
    /// The kinds of messages that it works on; empty for all except prompts.
    pub kinds: Vec<String>,
}

/// `claim`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The messages. Several sessions take turns.
    #[serde(rename = "session")]
    pub scope: ClaimScope,
    /// The kinds; empty for all except prompts. The claims of several kinds are ordered by queueing time.
    pub kinds: Vec<String>,
    /// Maximum number of messages, 1 to [`CLAIM_MAX`]. Only one message of each kind is in flight at a time.
    pub max: u32,
    /// The lease, in milliseconds: the longest time without a heartbeat. Defaults to the configuration's.
    pub lease_ms: Option<u64>,
    /// Maximum waiting time for the first message, in milliseconds.
    pub wait_ms: u64,
}

/// Maximum number of messages in one claim. Their bodies must also fit a frame.
pub const CLAIM_MAX: u32 = 64;

/// A reference to a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRef {
    /// The message.
    pub id: MessageId,
    /// The token of the claim.
    pub token: Token,
}

/// `ack`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The claim.
    pub held: ClaimRef,
    /// The result, at most [`crate::message::RESULT_MAX`] bytes.
    pub result: Option<OsBytes>,
}

/// `fail`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fail {
    /// The claim.
    pub held: ClaimRef,
    /// The reason, at most [`crate::message::REASON_MAX`] bytes.
    pub reason: String,
    /// The further treatment of the message.
    pub then: Disposition,
}

/// The further treatment of a message that was not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Try again after the configured back-off. Counts as a failure of its kind.
    Retry,
    /// Try again after this time in milliseconds, or after the configured back-off. Not a failure of its
    /// kind, because something else was not ready.
    Later(Option<u64>),
    /// Give up: the message is dead. Not a failure of its kind, because the message itself is at fault.
    Dead,
    /// Return the message unprocessed. The attempt does not count.
    GiveBack,
}

/// `queue purge`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purge {
    /// The session of the messages.
    pub session: SessionRef,
    /// The messages; empty for all in the given states.
    pub ids: Vec<MessageId>,
    /// The final states; empty for all.
    pub states: Vec<MessageState>,
    /// Minimum time since the message became final, in milliseconds.
    pub older_ms: u64,
}

/// `worker add`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddWorker {
    /// The worker.
    pub worker: WorkerSpec,
    /// The working directory of its handlers.
    pub cwd: OsBytes,
    /// Additions to their environment.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// The caller's environment, as for `new`.
    pub caller_env: Vec<(OsBytes, OsBytes)>,
    /// Resource limits of all of its processes together.
    pub limits: Limits,
    /// Maximum number of starts after a failure within the configured window; defaults to the
    /// configuration's.
    pub max_restarts: Option<u32>,
}

/// A selection of a session's messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// The session.
    pub session: SessionRef,
    /// The kinds; empty for all.
    pub kinds: Vec<String>,
    /// The states; empty for all.
    pub states: Vec<MessageState>,
    /// Maximum number of messages: the first ones that are not final, and the newest final ones.
    pub limit: u32,
}

/// `queue resolve`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolveMessage {
    /// The message.
    pub id: MessageId,
    /// The new state.
    pub resolution: Resolution,
}

/// The end of an in-doubt message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolution {
    /// The message was typed.
    Done,
    /// The message was not typed and is to be typed again.
    Retry,
    /// The message is to be given up.
    Dead,
}
