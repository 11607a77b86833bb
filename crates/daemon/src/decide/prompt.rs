//! The text that is typed for a message.

use pool::Agent;
use protocol::{Message, Timestamp};

use crate::engine::Turn;

/// Returns the text that is typed for a message: its body; or the agent's `go_on` prompt, if the current
/// conversation already contains the body. `message` has the token of the attempt.
pub(crate) fn typed_text(turn: &Turn<'_>, agent: &Agent, message: &Message, body: Vec<u8>) -> Vec<u8> {
    let text = match &agent.go_on {
        Some(go_on) if is_in_conversation(turn, message) => go_on.clone().into_bytes(),
        _ => body,
    };
    // `typing` differs between two prompts in a row, `attempt` between two attempts at the same prompt.
    let typing = message.ordinal.wrapping_add(u64::from(message.status.attempts));
    let attempt = message.status.token.map_or(0, |token| token.epoch.0.wrapping_add(token.n));
    agents::prompt::make_distinct(agent.adapter, text, typing % 7 + 7 * (attempt % 9))
}

/// True if the present conversation of the agent contains the message, whose turn an outage has cut short.
pub(crate) fn is_in_conversation(turn: &Turn<'_>, message: &Message) -> bool {
    let run = turn.pool().session(message.session).and_then(|session| session.incarnation.as_ref());
    let is_new_conversation = |at: Timestamp| {
        run.is_some_and(|run| !run.resumed && turn.pool().is_earlier(turn.now(), at, run.started_at))
    };
    message.suspended_at().is_some_and(|at| !is_new_conversation(at))
}
