//! The text that is typed for a message.

use pool::Agent;
use protocol::{Message, Timestamp};

use crate::engine::Turn;

/// What is typed for a message: its body, or that its agent is to go on where that has the body already, in the
/// conversation that it has now.
pub(crate) fn text_of(turn: &Turn<'_>, agent: &Agent, message: &Message, body: Vec<u8>) -> Vec<u8> {
    let run = turn.pool().session(message.session).and_then(|session| session.incarnation.as_ref());
    let begun_anew = |at: Timestamp| {
        run.is_some_and(|run| !run.resumed && turn.pool().is_earlier(turn.now(), at, run.started_at))
    };
    let text = match &agent.go_on {
        Some(go_on) if message.suspended_at().is_some_and(|at| !begun_anew(at)) => go_on.clone().into_bytes(),
        _ => body,
    };
    let times = message.ordinal + u64::from(message.status.attempts);
    agents::prompt::make_distinct(agent.adapter, text, times)
}
