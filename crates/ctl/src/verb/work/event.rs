//! The events that the threads of `work` send to the main thread.

use nix::sys::signal::Signal;
use protocol::{Claimed, Refusal, Token};

use super::handler_exit::HandlerExit;
use crate::Error;

/// An event for the main thread.
pub(super) enum WorkEvent {
    /// A signal that asks for the end.
    Signal(Signal),
    /// Messages may be claimed again.
    PauseOver,
    /// The claim was answered with these messages; true if more of the kinds wait.
    Claimed(Vec<Claimed>, bool),
    /// No message can be claimed any more.
    Broken(Error),
    /// A handler ended.
    Ended(Token, HandlerExit),
    /// A handler was killed, with all of its descendants; or the reason why some of them may be alive.
    Killed(Token, Option<String>),
    /// The message is no longer held.
    Stale(Token),
    /// The message is settled, or that was refused.
    Settled(Token, Result<(), Refusal>),
}
