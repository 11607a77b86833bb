//! A pending message, as look-ups return it.

use protocol::{Holder, InDoubt, MessageId, MessageState, SessionId, Timestamp, Token};

/// A message that is not in a final state, as far as it is in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMessage<'a> {
    pub id: MessageId,
    pub session: SessionId,
    pub kind: &'a str,
    /// The priority; higher ones are worked first.
    pub priority: i8,
    /// Size of its body in bytes.
    pub size: u32,
    /// Time at which it was queued.
    pub created_at: Timestamp,
    pub state: MessageState,
    /// Number of attempts that began.
    pub attempts: u32,
    /// Fencing token of the present attempt.
    pub token: Option<Token>,
    /// The worker that claimed it.
    pub holder: Option<&'a Holder>,
    /// Time before which it is not attempted again.
    pub not_before: Option<Timestamp>,
    /// Time of the last change of its status; the time of queueing before the first attempt.
    pub since: Timestamp,
    /// True if its agent has the text already and is only told to continue.
    pub is_suspended: bool,
    /// Its own treatment once it is in doubt.
    pub in_doubt: Option<InDoubt>,
    /// True if it is in doubt for a reason that only a person resolves.
    pub needs_person: bool,
}
