//! Prompts that only a person can move on: waiting for one would never end.

use protocol::{MessageId, MessageState, Session, SessionId};

use crate::pool::Pool;
use crate::prompt::state::Prompts;
use crate::queue::admin::resolve_command;
use crate::queue::doubt;
use crate::queue::prompts::held_prompt;
use crate::turn::Turn;

/// Leaves a typed prompt to a person, and tells the clients that wait for it.
pub fn leave_to_person(turn: &mut Turn<'_>, session: SessionId, message: MessageId) {
    turn.volatile.prompts.leave_to_person(session, message);
    turn.wake();
}

/// Returns the prompt of a session that waits for a person, and why, with what to do: it was typed and nothing confirms
/// it any more, or it is in doubt. A late report of its agent may still move it on.
pub fn left_to_person(pool: &Pool, prompts: &Prompts, session: &Session) -> Option<(MessageId, String)> {
    let held = held_prompt(pool, session.id)?;
    let why = match held.state {
        MessageState::Typed if prompts.left_to_person(session.id) == Some(held.id) => {
            "was typed and nothing confirms it"
        }
        MessageState::InDoubt if doubt::waits_for_person(&held) => "is in doubt",
        _ => return None,
    };
    let (id, name) = (held.id, session.name.as_str());
    let how = resolve_command(name, id);
    Some((
        id,
        format!("message {id} {why}; it is left to you: look by `poolctl attach {name}`, then `{how}`"),
    ))
}
