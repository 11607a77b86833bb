//! The text that is typed for a message.

use pool::Agent;
use protocol::{Message, Timestamp};

use crate::engine::Turn;

/// Returns the text that is typed for a message: its body; or the agent's `go_on` prompt, if the current
/// conversation already contains the body.
pub(crate) fn typed_text(turn: &Turn<'_>, agent: &Agent, message: &Message, body: Vec<u8>) -> Vec<u8> {
    let run = turn.pool().session(message.session).and_then(|session| session.incarnation.as_ref());
    let is_new_conversation = |at: Timestamp| {
        run.is_some_and(|run| !run.resumed && turn.pool().is_earlier(turn.now(), at, run.started_at))
    };
    let text = match &agent.go_on {
        Some(go_on) if message.suspended_at().is_some_and(|at| !is_new_conversation(at)) => {
            go_on.clone().into_bytes()
        }
        _ => body,
    };
    let times = message.ordinal + u64::from(message.status.attempts);
    agents::prompt::make_distinct(agent.adapter, text, times)
}
