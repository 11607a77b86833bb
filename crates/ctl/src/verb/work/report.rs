//! What is said about each message that was worked.

use std::time::Duration;

use protocol::Message;
use serde_json::json;

use crate::context::Context;
use crate::error::Error;
use crate::show::{escape, out, time};

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Worked.
    Done,
    /// It failed and is tried again, or is dead by now.
    Retry,
    /// It is tried later.
    Later,
    /// It was no longer held here: nothing was settled.
    Stale,
    /// What worked it could not be ended: nothing was settled, the lease decides.
    Left,
    /// It was not worked, and given back.
    GivenBack,
}

impl Outcome {
    fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Later => "later",
            Self::Stale => "stale",
            Self::Left => "left",
            Self::GivenBack => "given_back",
        }
    }
}

/// Prints a line: a document, or for people on a terminal.
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
            "outcome": outcome.word(),
            "reason": reason,
            "duration_ms": time::millis(took),
        }));
    }
    if context.style.quiet || !context.style.terminal {
        return Ok(());
    }
    let reason = reason.map(|reason| format!("  {}", escape::line(reason))).unwrap_or_default();
    let line = format!("{}  {}  {}  {}{reason}", message.id, message.kind, outcome.word(), seconds(took));
    out::line(&line)
}

fn seconds(took: Duration) -> String {
    if took < Duration::from_secs(60) { format!("{:.1}s", took.as_secs_f64()) } else { time::short(took) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_have_a_tenth() {
        assert_eq!(seconds(Duration::from_millis(1240)), "1.2s");
        assert_eq!(seconds(Duration::from_secs(125)), "2m");
    }
}
