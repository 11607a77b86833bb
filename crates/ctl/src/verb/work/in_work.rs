//! A message in work, and the state of its handler.

use std::time::Instant;

use protocol::{Message, ProcId};

use super::report::Outcome;

/// A message in work.
pub(super) struct MessageInWork {
    pub message: Message,
    pub process: Option<ProcId>,
    pub began: Instant,
    pub state: HandlerState,
}

/// The state of a message's handler.
pub(super) enum HandlerState {
    /// It runs, and its end decides about the message.
    Running,
    /// It is being ended, and the message then has this outcome.
    Stopping(Outcome, StopProgress),
    /// It has ended, and the message is being settled with this outcome and reason.
    Settling(Outcome, Option<String>),
}

/// The progress of ending a handler. Its message is not settled while a process of it may be alive.
#[derive(Default)]
pub(super) struct StopProgress {
    /// The handler itself has ended.
    pub exited: bool,
    /// All of its descendants have ended.
    pub killed: bool,
}

/// The phase of the worker.
pub(super) enum Phase {
    Working,
    /// No more messages are claimed.
    Draining,
    /// After the second signal: the time limit, and the exit code.
    Ending(Instant, u8),
}
