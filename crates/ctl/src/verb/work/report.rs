//! The report on each message.

use std::time::Duration;

use protocol::Message;
use protocol::request::Disposition;
use serde_json::json;

use crate::show::{escape, out, time};
use crate::{Context, Error};

/// The outcome of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The handler completed it.
    Done,
    /// The handler failed; it is tried again, or dead after the last attempt.
    Retry,
    /// The handler deferred it.
    Later,
    /// The handler gave it up.
    Dead,
    /// Its claim was lost: it was not settled.
    Stale,
    /// Its handler could not be ended: it was not settled, and its lease will end.
    Left,
    /// It was returned to the queue.
    GivenBack,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Later => "later",
            Self::Dead => "dead",
            Self::Stale => "stale",
            Self::Left => "left",
            Self::GivenBack => "given_back",
        }
    }

    /// The disposition that settles its claim; `None` for an acknowledgement.
    pub(super) fn disposition(self) -> Option<Disposition> {
        match self {
            Self::Done => None,
            Self::Later => Some(Disposition::Later(None)),
            Self::Dead => Some(Disposition::Dead),
            Self::GivenBack => Some(Disposition::GiveBack),
            Self::Retry | Self::Stale | Self::Left => Some(Disposition::Retry),
        }
    }
}

/// Prints the outcome: a JSON document, or a line for people on a terminal.
pub(super) fn print(
    context: &Context,
    message: &Message,
    (outcome, reason): (Outcome, Option<&str>),
    took: Duration,
) -> Result<(), Error> {
    if context.style.json {
        return out::json(&json!({
            "id": message.id,
            "kind": message.kind,
            "outcome": outcome.as_str(),
            "reason": reason,
            "duration_ms": time::millis(took),
        }));
    }
    if context.style.quiet || !context.style.terminal {
        return Ok(());
    }
    let reason = reason.map(|reason| format!("  {}", escape::line(reason))).unwrap_or_default();
    let line =
        format!("{}  {}  {}  {}{reason}", message.id, message.kind, outcome.as_str(), time::precise(took));
    out::line(&line)
}
